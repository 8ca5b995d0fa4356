"""The two ways in which a program can be kept apart, and whether this machine has them."""

from __future__ import annotations

import atexit
import functools
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from groupwise.errors import SandboxError
from groupwise.rewards.sandbox.inside import filter as calls
from groupwise.rewards.sandbox.interpreter import Interpreter

Isolation = Literal["bubblewrap", "restricted"]

_WEAKER = "or ask for the weaker mode by name, isolation: restricted; docs/rewards/sandbox.md says what each keeps out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start one cell."""

    command: tuple[str, ...]
    """Program and arguments."""
    descriptors: tuple[int, ...] = ()
    """What it inherits beside its socket; closed here once it runs."""
    folder: Path | None = None
    """Its working folder on the host, removed after it; None where that is memory of its own."""


def launch(
    isolation: Isolation,
    interpreter: Interpreter,
    *,
    control: int,
    disk_mb: int,
    private_user: bool,
) -> Launch:
    """How to start a cell that is connected by this descriptor.

    Args:
        isolation: the way in which it is kept apart.
        interpreter: what it runs.
        control: its end of the socket to us.
        disk_mb: size of its files in memory, in MiB.
        private_user: for bubblewrap started by root: become a user of its own, without a user namespace.

    Raises:
        SandboxError: bubblewrap is not installed, or this is no Linux.
    """
    if isolation == "restricted":
        return _restricted(interpreter, control)
    return _bubblewrap(interpreter, disk_mb, control, private_user=private_user)


def _start(interpreter: Interpreter, place: str, *arguments: object) -> tuple[str, ...]:
    boot = f"import sys; sys.path.insert(0, {place!r}); from inside.cell import main; main()"
    return (*interpreter.command, "-c", boot, *map(str, arguments))


def _bubblewrap(interpreter: Interpreter, disk_mb: int, control: int, *, private_user: bool) -> Launch:
    """Namespaces of its own, no network, a read-only root, files in memory, no capabilities, filtered system calls.

    Root becomes a user that nobody else is, whose processes the kernel can then count. An ordinary user gets a user
    namespace, in which no further one can be made.
    """
    size = disk_mb << 20
    words = [
        _bwrap(),
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    if private_user:
        uid = _user_of_nobody()
        words += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        uid = 0
        words += [
            "--unshare-user",
            "--disable-userns",
            "--uid",
            "65534",
            "--gid",
            "65534",
            "--cap-drop",
            "ALL",
        ]
    words += ["--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"]
    for key, value in _ENVIRONMENT.items():
        words += ["--setenv", key, value]
    words += ["--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64", "lib32", "bin", "sbin"):
        if os.path.islink(f"/{name}"):
            words += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            words += ["--ro-bind", f"/{name}", f"/{name}"]
    for folder in _parents([*interpreter.paths, "/sandbox/inside"]):
        words += ["--perms", "0755", "--dir", folder]
    for path in interpreter.paths:
        words += ["--ro-bind", path, path]
    words += ["--ro-bind", str(inside_for(interpreter)), "/sandbox/inside"]
    words += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    words += ["--perms", "1777", "--size", str(min(size, 16 << 20)), "--tmpfs", "/dev/shm"]
    words += [
        "--perms",
        "1777",
        "--size",
        str(size),
        "--tmpfs",
        "/tmp",
        "--chdir",
        "/tmp",
        "--remount-ro",
        "/",
    ]
    descriptors: tuple[int, ...] = ()
    machine = calls.architecture_of(platform.machine())
    if machine is not None:
        file = os.memfd_create("seccomp")
        os.write(file, calls.build(machine))
        os.lseek(file, 0, os.SEEK_SET)
        words += ["--seccomp", str(file)]
        descriptors = (file,)
    words += ["--", *_start(interpreter, "/sandbox", control, uid)]
    return Launch(command=tuple(words), descriptors=descriptors)


_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "PYTHONHASHSEED": "0",  # sets have the same order in every run, so that a grade can be repeated
}


def _parents(paths: list[str]) -> list[str]:
    """Every folder above these, outermost first. Made by hand, since bubblewrap copies the modes of the host's."""
    above = {str(parent): None for path in paths for parent in reversed(Path(path).parents)}
    return [folder for folder in above if folder not in ("/", "/usr")]


def _restricted(interpreter: Interpreter, control: int) -> Launch:
    machine = calls.architecture_of(platform.machine())
    if sys.platform != "linux" or machine is None:
        raise SandboxError(
            f"isolation: restricted works on Linux on x86_64 and aarch64, and this is {platform.machine()} "
            f"{sys.platform}; grade programs on such a machine"
        )
    folder = Path(tempfile.mkdtemp(prefix="groupwise-"))
    inside = inside_for(interpreter)
    readable = ["/usr", "/lib", "/lib64", "/bin", *interpreter.paths, str(inside.parent)]
    return Launch(
        command=_start(interpreter, str(inside.parent), control, 0, folder, machine, *readable),
        folder=folder,
    )


def environment(isolation: Isolation) -> dict[str, str]:
    """The whole environment of what is started. bubblewrap's own shows inside as that of process 1, so it is empty."""
    return {} if isolation == "bubblewrap" else dict(_ENVIRONMENT)


@functools.cache
def inside_for(interpreter: Interpreter) -> Path:
    """A copy of the inside, compiled for this interpreter, since what is read-only is compiled at every start."""
    folder = Path(tempfile.mkdtemp(prefix="groupwise-inside-"))
    owner = os.getpid()
    atexit.register(_remove, folder, owner)
    target = folder / "inside"
    target.mkdir()
    for file in (Path(__file__).parent / "inside").glob("*.py"):
        (target / file.name).write_bytes(file.read_bytes())
    subprocess.run(
        [
            *interpreter.command[:2],
            "-m",
            "compileall",
            "-q",
            "--invalidation-mode",
            "unchecked-hash",
            str(target),
        ],
        check=False,
        env={},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for path in (folder, target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _bwrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxError(
            "programs are graded in isolation, and there is no bubblewrap here; install it (apt-get install "
            f"bubblewrap; dnf, pacman and apk have it by the same name), {_WEAKER}"
        )
    return found


def _user_of_nobody() -> int:
    """A user id that is mapped here and that, being drawn from many, nobody has."""
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    start, _, count = max(ranges, key=lambda one: one[2])
    first = start + min(count, 2**31) // 2
    return random.SystemRandom().randrange(first, start + min(count, 2**31) - 1)


def refusal(isolation: Isolation, said: str) -> SandboxError:
    """The error for an isolation that does not come up, with what it said and the remedy."""
    if isolation == "restricted":
        return SandboxError(
            f"isolation: restricted does not work here ({said}); it needs a kernel of 5.13 or newer with landlock and "
            "seccomp; install bubblewrap and set isolation: bubblewrap"
        )
    return SandboxError(
        f"bubblewrap cannot isolate programs here ({said}); in a container it needs user namespaces (docker run "
        "--security-opt seccomp=unconfined, or a runtime that allows them), and on Ubuntu 24.04 an AppArmor profile "
        f"for bwrap; {_WEAKER}"
    )
