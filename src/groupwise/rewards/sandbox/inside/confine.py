"""The weaker mode: what a process can give up by itself, without namespaces around it (landlock, seccomp, limits)."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT, _CAPSET = 444, 445, 446, {"x86_64": 126, "aarch64": 91}
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER, _DUMPABLE = 38, 22, 2, 4
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1, 2, 4, 8
_ALL_FILE_RIGHTS = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
_OF_FILES_ALONE = 1 | 2 | 4 | 0x4000 | 0x8000
_libc = ctypes.CDLL(None, use_errno=True)


class _Rules(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def landlock_version() -> int:
    """The version of landlock that this kernel has; 0 for none."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)))


def give_up_files(readable: Iterable[str], writable: Iterable[str]) -> None:
    """From now on only these can be opened, and no TCP port; signals and abstract sockets stay inside, from 6.12 on.

    Raises:
        OSError: the kernel has no landlock.
    """
    version = landlock_version()
    if version < 1:
        raise OSError("this kernel has no landlock")
    files = _ALL_FILE_RIGHTS[min(version, 5)]
    rules = _Rules(files, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _checked(
        _libc.syscall(_LANDLOCK_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), 0), "landlock"
    )
    for paths, allowed in ((readable, _EXECUTE | _READ_FILE | _READ_FOLDER), (writable, files)):
        for path in paths:
            try:
                folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            rights = allowed if os.path.isdir(path) else allowed & _OF_FILES_ALONE
            beneath = _Beneath(rights & files, folder)
            _checked(
                _libc.syscall(_LANDLOCK_ADD, ruleset, 1, ctypes.byref(beneath), 0), f"landlock on {path}"
            )
            os.close(folder)
    no_new_privileges()
    _checked(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "landlock")
    os.close(ruleset)


def no_new_privileges() -> None:
    """From now on no program that is started gains rights by its file."""
    _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")


def show_to_own_user(shown: bool) -> None:
    """Whether other processes of this user may look into this one (`/proc`, tracing)."""
    _checked(_libc.prctl(_DUMPABLE, int(shown), 0, 0, 0), "prctl")


def give_up_capabilities(machine: str) -> None:
    """From now on root is an ordinary user who owns root's files."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _checked(
        _libc.syscall(_CAPSET[machine], ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())), "capset"
    )


def give_up_calls(code: bytes) -> None:
    """From now on the kernel applies this filter to every system call, also in children."""
    kept = ctypes.create_string_buffer(code, len(code))
    program = _Filter(len(code) // 8, ctypes.cast(kept, ctypes.c_void_p))
    _checked(_libc.prctl(_SECCOMP, _FILTER, ctypes.byref(program), 0, 0), "seccomp")


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
