"""System calls that programs are refused, as a program for the kernel's filter (seccomp, in classic BPF).

The list is of what no graded program needs: other processes' memory, limits and priorities, namespaces and mounts, the
kernel's keys, modules, clocks and tracing, and memory that no limit counts (System V and `memfd`). All else is allowed.
"""

from __future__ import annotations

_X32 = 0x40000000
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALWAYS = """
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, mount 165 40, umount2 166 39,
pivot_root 155 41, chroot 161 51, unshare 272 97, setns 308 268, open_tree 428 428, move_mount 429 429, fsopen 430 430,
fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442, bpf 321 280, perf_event_open 298 241,
userfaultfd 323 282, io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427, keyctl 250 219,
add_key 248 217, request_key 249 218, kexec_load 246 104, kexec_file_load 320 294, init_module 175 105,
finit_module 313 273, delete_module 176 106, reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89,
syslog 103 116, settimeofday 164 170, clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266,
sethostname 170 161, setdomainname 171 162, quotactl 179 60, name_to_handle_at 303 264, open_by_handle_at 304 265,
memfd_create 319 279, memfd_secret 447 447, shmget 29 194, semget 64 190, msgget 68 186, mq_open 240 180,
pidfd_getfd 438 438, lookup_dcookie 212 18, vhangup 153 58, fanotify_init 300 262, process_madvise 440 440,
move_pages 279 239, migrate_pages 256 238, iopl 172 -, ioperm 173 -, setpriority 141 140, sched_setaffinity 203 122,
sched_setscheduler 144 119, sched_setparam 142 118, sched_setattr 314 274, ioprio_set 251 30
"""
_SHARED_HOST = """
socket 41 198, kill 62 129, tkill 200 130, tgkill 234 131, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240,
pidfd_send_signal 424 424, chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452,
chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54, utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88,
setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16,
setxattrat 463 463, removexattrat 466 466, truncate 76 45
"""
_NEW_PROCESSES = "fork 57 -, vfork 58 -, setsid 112 157, setpgid 109 154"
_CLONE, _CLONE3, _PRLIMIT = (56, 220), (435, 435), (302, 261)
_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_THREAD = 0x00010000

_LOAD, _EQUAL, _ATLEAST, _ANY, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16


def architecture_of(machine: str) -> str | None:
    """The name of a machine that there is a list for; None for another."""
    return machine if machine in _ARCHITECTURES else None


def _numbers(table: str, machine: str) -> list[int]:
    column = list(_ARCHITECTURES).index(machine) + 1
    words = [entry.split()[column] for entry in table.split(",")]
    return [int(word) for word in words if word != "-"]


def build(machine: str, *, shared_host: bool = False, processes: bool = True) -> bytes:
    """The filter.

    Args:
        machine: `x86_64` or `aarch64`.
        shared_host: refuse too what reaches beyond the process where no namespaces stand around it: sockets, signals,
            owners, modes and times of files.
        processes: False to refuse new processes; threads are allowed.
    """
    column = list(_ARCHITECTURES).index(machine)
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":  # the second table of numbers, which nothing of today uses
        code += [(_ATLEAST, 0, 1, _X32), (_RETURN, 0, 0, _EPERM)]
    # Flags of clone3 lie in memory, where a filter cannot look; without it, libraries fall back to clone.
    code += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ENOSYS)]
    clone = [
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY, 0, 1, _NAMESPACES),
        (_RETURN, 0, 0, _EPERM),
        *([] if processes else [(_ANY, 1, 0, _THREAD), (_RETURN, 0, 0, _EPERM)]),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code += [(_EQUAL, 0, len(clone), _CLONE[column]), *clone]
    # Limits of other processes; its own have the number 0.
    code += [
        (_EQUAL, 0, 4, _PRLIMIT[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    refused = _numbers(_ALWAYS, machine)
    if shared_host:
        refused += _numbers(_SHARED_HOST, machine)
    if not processes:
        refused += _numbers(_NEW_PROCESSES, machine)
    for number in sorted(refused):
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(_instruction(*instruction) for instruction in code)


def _instruction(operation: int, if_true: int, if_false: int, value: int) -> bytes:
    return operation.to_bytes(2, "little") + bytes((if_true, if_false)) + value.to_bytes(4, "little")
