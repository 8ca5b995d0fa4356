"""The filter of system calls, run as the kernel would."""

from __future__ import annotations

import pytest

from groupwise.rewards.sandbox.inside import filter as calls

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
THREAD = 0x3D0F00  # as pthread_create asks for one
FORK = 0x1200011


def decide(code: bytes, number: int, architecture: int, argument: int = 0) -> int:
    """Interpret the filter: load, jump, return."""
    words = {0: number, 4: architecture, 16: argument}
    at, held = 0, 0
    while True:
        operation = int.from_bytes(code[8 * at : 8 * at + 2], "little")
        if_true, if_false = code[8 * at + 2], code[8 * at + 3]
        value = int.from_bytes(code[8 * at + 4 : 8 * at + 8], "little")
        at += 1
        if operation == 0x20:
            held = words[value]
        elif operation == 0x06:
            return value
        else:
            true = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[operation]
            at += if_true if true else if_false


# read, write, mmap, execve, openat, futex, socketpair: by hand from the kernel's two tables.
NEEDED = {"x86_64": (0, 1, 9, 59, 257, 202, 53), "aarch64": (63, 64, 222, 221, 56, 98, 199)}
# ptrace, process_vm_writev, mount, unshare, setns, bpf, keyctl, io_uring_setup, memfd_create, pidfd_getfd.
REFUSED = {
    "x86_64": (101, 311, 165, 272, 308, 321, 250, 425, 319, 438),
    "aarch64": (117, 271, 40, 97, 268, 280, 219, 425, 279, 438),
}
CLONE, CLONE3 = {"x86_64": 56, "aarch64": 220}, 435
PRLIMIT = {"x86_64": 302, "aarch64": 261}
SOCKET, KILL_CALL = {"x86_64": 41, "aarch64": 198}, {"x86_64": 62, "aarch64": 129}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_what_is_refused_and_what_is_not(machine: str) -> None:
    own = ARCHITECTURES[machine]
    for code in (calls.build(machine), calls.build(machine, shared_host=True, processes=False)):
        assert all(decide(code, number, own) == ALLOW for number in NEEDED[machine])
        assert all(decide(code, number, own) == EPERM for number in REFUSED[machine])
        assert decide(code, CLONE[machine], own, THREAD) == ALLOW
        assert decide(code, CLONE[machine], own, 0x10000000 | FORK) == EPERM  # in a new user namespace
        assert decide(code, CLONE3, own) == ENOSYS  # so that libraries use clone, whose flags can be seen
        assert decide(code, PRLIMIT[machine], own, 0) == ALLOW  # its own limits
        assert decide(code, PRLIMIT[machine], own, 1234) == EPERM
        assert decide(code, 0, 0x40000003) == KILL  # another architecture has other numbers
    assert len(code) // 8 < 4096  # what the kernel takes


def test_the_second_table_of_x86_is_closed() -> None:
    assert decide(calls.build("x86_64"), 0x40000000 + 101, ARCHITECTURES["x86_64"]) == EPERM


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_weaker_mode_refuses_more(machine: str) -> None:
    own = ARCHITECTURES[machine]
    with_namespaces = calls.build(machine)
    without = calls.build(machine, shared_host=True, processes=False)
    for number in (SOCKET[machine], KILL_CALL[machine]):
        assert decide(with_namespaces, number, own) == ALLOW
        assert decide(without, number, own) == EPERM
    assert decide(with_namespaces, CLONE[machine], own, FORK) == ALLOW
    assert decide(without, CLONE[machine], own, FORK) == EPERM


def test_other_machines_have_no_filter() -> None:
    assert calls.architecture_of("riscv64") is None
    assert calls.architecture_of("aarch64") == "aarch64"
