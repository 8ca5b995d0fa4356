"""What a sandbox starts with: gives up what it still has, then does job after job, each in a process of its own.

This process, the keeper, never runs a line of a program or of its tests. It forks, waits, ends what is left, empties
the working folder, and says that it is free. A program cannot reach it: the filter of system calls refuses other
processes' memory and limits, and the keeper is marked so that `/proc` shows nothing of it to its own user.
"""

from __future__ import annotations

import _sitebuiltins
import _socket
import builtins
import gc
import os
import resource
import select
import sys

from . import cases, confine, filter, growth, objects, plain, program, runners, tests, wire  # noqa: F401 - read before the fork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_WARM = (
    "abc bisect collections contextlib copy dataclasses datetime decimal enum fractions functools heapq io itertools "
    "json math operator random re statistics string time typing"
)
"""Modules that programs often import; read once here instead of once per program."""
_FOLDERS = ("/tmp", "/dev/shm")


def main() -> None:
    """`CONTROL UID`: a descriptor and a user to become, then for the weaker mode its working folder, the machine and
    the folders that may be read.
    """
    control, uid, *confined = sys.argv[1:]
    sys.path.remove(os.path.dirname(os.path.dirname(__file__)))
    for name in _WARM.split():
        __import__(name)
    machine = ""
    if int(uid):
        os.setgroups([])
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
    if confined:
        folder, machine, *readable = confined
        os.chdir(folder)
        os.environ["HOME"] = os.environ["TMPDIR"] = folder
        devices = [f"/dev/{name}" for name in ("null", "zero", "full")]
        confine.give_up_files([*readable, "/dev/urandom", "/dev/random"], [folder, *devices])
        confine.give_up_capabilities(machine)
    confine.show_to_own_user(False)
    builtins.exit = builtins.quit = _sitebuiltins.Quitter("exit", "")
    gc.freeze()
    _keep(int(control), machine)
    os._exit(0)


def _keep(control: int, machine: str) -> None:
    _tell(control, "ready")
    _silence()
    socket = _socket.socket(fileno=control)
    while True:
        try:
            job, links = _next_job(socket, control)
        except (wire.ClosedError, OSError):
            return
        if job == "stop":  # it had ended by itself
            continue
        child = os.fork()
        if child == 0:
            try:
                _ROLES[job["role"]](control, links, job, machine)
            finally:
                os._exit(0)
        for link in links:
            os.close(link)
        _wait(child, control)
        if not _clean(machine):
            return
        _tell(control, "free")


def _next_job(socket: Any, control: int) -> tuple[Any, list[int]]:
    """A job, and the descriptors that came with it."""
    byte, ancillary, *_ = socket.recvmsg(1, _socket.CMSG_SPACE(8))
    if not byte:
        raise wire.ClosedError
    packed = ancillary[0][2] if ancillary else b""
    links = [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4)]
    return plain.decode(wire.receive(control), _nothing), links


def _tell(control: int, value: Any) -> None:
    wire.send(control, plain.encode(value, _nothing))


def _nothing(value: Any) -> Any:
    raise ValueError(f"{type(value).__name__} is not plain")


def _wait(child: int, control: int) -> None:
    """Wait until the child ends or the host says something, which is that it should end."""
    handle = os.pidfd_open(child)
    select.select([handle, control], [], [])
    os.close(handle)
    os.kill(child, 9)  # it is still to be waited for, so that its number is nobody else's
    os.waitpid(child, 0)


def _clean(machine: str) -> bool:
    """End what the job has left and remove its files; False where that fails, and this sandbox has to go."""
    if not machine:
        _kill_others()
    try:
        for folder in (".",) if machine else _FOLDERS:
            _empty(folder)
    except OSError:
        return False
    return bool(machine) or _alone()


def _kill_others() -> None:
    """End every process of this sandbox but its first and this one. In the weaker mode programs start none."""
    try:
        os.kill(-1, 9)
        while True:
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        return


def _alone() -> bool:
    ours = {"1", str(os.getpid())}
    for _ in range(200):
        if {name for name in os.listdir("/proc") if name.isdigit()} <= ours:
            return True
        select.select([], [], [], 0.002)
    return False


def _empty(folder: str) -> None:
    for place, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(place, name))
        for name in folders:
            path = os.path.join(place, name)
            (os.unlink if os.path.islink(path) else os.rmdir)(path)
    if os.listdir(folder):
        raise OSError("not empty")
    if os.stat(folder).st_uid == os.getuid():  # then a program could have changed it
        os.chmod(folder, 0o1777)


def _silence() -> None:
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)


def _limit(limits: dict[str, int], machine: str) -> None:
    """The kernel's limits per process, for this one and all that it starts; in the weaker mode it can start none."""
    wanted = [
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["disk_bytes"]),
        (resource.RLIMIT_CPU, limits["cpu_seconds"]),
        (resource.RLIMIT_NOFILE, 128),
        (resource.RLIMIT_CORE, 0),
    ]
    if not machine:  # there it would count every process that the user has on the whole host
        wanted.append((resource.RLIMIT_NPROC, limits["processes"] + 1))
    for kind, value in wanted:
        hard = resource.getrlimit(kind)[1]
        most = sys.maxsize if hard == resource.RLIM_INFINITY else hard
        # One second between the signal that can be caught and the one that cannot.
        spare = 1 if kind == resource.RLIMIT_CPU else 0
        resource.setrlimit(kind, (min(value, most), min(value + spare, most)))
    confine.show_to_own_user(True)
    if machine:
        confine.give_up_calls(filter.build(machine, shared_host=True, processes=False))


def _program(control: int, links: list[int], job: dict[str, Any], machine: str) -> None:
    os.close(control)
    _limit(job["limits"], machine)
    sys.argv = ["solution.py"]
    sys.path.insert(0, "")
    program.Program(links[0]).serve_until_closed()


def _script(control: int, links: list[int], job: dict[str, Any], machine: str) -> None:
    def confine_case() -> None:
        _limit(job["limits"], machine)
        sys.path.insert(0, "")

    leftovers: Callable[[], None] = (lambda: None) if machine else _kill_the_rest
    cases.run_all(control, job, confine_case, leftovers)


def _kill_the_rest() -> None:
    """End what a case has left, from within the job: all but this process and the keeper."""
    keeper = os.getppid()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, keeper, os.getpid()):
            try:
                os.kill(int(name), 9)
            except OSError:
                continue


def _judge(control: int, links: list[int], job: dict[str, Any], machine: str) -> None:
    _limit(job["limits"], machine)
    verdict = tests.Run(links[0], job).verdict()
    _tell(control, (job["secret"], verdict))


def _growth(control: int, links: list[int], job: dict[str, Any], machine: str) -> None:
    _limit(job["limits"], machine)
    growth.run(links, job, lambda message: _tell(control, (job["secret"], message)))


_ROLES = {"program": _program, "script": _script, "judge": _judge, "growth": _growth}
