"""The system calls that no program needs and no program gets: a deny-list in the kernel's packet-filter language.

Invariants: a denied call fails with EPERM; a call in a foreign architecture's numbering (i386 or x32 on x86_64) kills the
process, because the list would not apply to it; the filter can't be removed, and holds for whatever the process starts.
"""

from __future__ import annotations

import ctypes
import struct

from reward_loop.sandbox.inside import kernel

# name: (number on x86_64, number on aarch64); None where the machine has no such call.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    # networks, and memory or messages that outlive a process
    "socket": (41, 198), "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # namespaces, mounts and roots
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "quotactl": (179, 60), "quotactl_fd": (443, 443), "swapon": (167, 224),
    "swapoff": (168, 225), "fanotify_init": (300, 262),
    # large or often attacked parts of the kernel
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "uselib": (134, None), "ustat": (136, None), "sysfs": (139, None), "_sysctl": (156, None),
    "personality": (135, 92), "modify_ldt": (154, None), "vmsplice": (278, 75),
    # the machine itself
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "create_module": (174, None), "reboot": (169, 142), "syslog": (103, 116), "acct": (163, 89),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None),
    "nfsservctl": (180, 42), "lookup_dcookie": (212, 18),
}  # fmt: skip

_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_PRCTL = {"x86_64": 157, "aarch64": 167}
_SOCKETPAIR = {"x86_64": 53, "aarch64": 199}
_IOCTL = {"x86_64": 16, "aarch64": 29}

_AF_UNIX = 1
_NEW_NAMESPACES = 0x7E020000
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX put words into a terminal's mouth

_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data; low halves of the arguments

_Step = tuple[int, int, int, int]


def install() -> None:
    """Filter the system calls of this process and of all that it will start; needs no_new_privs or privileges."""
    program = build(kernel.MACHINE)
    steps = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(steps)))
    kernel.prctl(kernel.PR_SET_SECCOMP, 2, ctypes.addressof(header))


def build(machine: str) -> bytes:
    """Return the filter for a machine as the kernel wants it: 8 bytes a step."""
    column = 0 if machine == "x86_64" else 1
    steps = [*_of_this_architecture(machine)]
    for number in sorted({numbers[column] for numbers in _DENIED.values()} - {None}, key=int):  # type: ignore[arg-type]
        steps += [(_EQUAL, 0, 1, int(number or 0)), _deny(_EPERM)]
    steps += [(_EQUAL, 0, 1, _CLONE3), _deny(_ENOSYS)]  # its flags lie in memory, unseen: libc falls back to clone
    steps += _when_argument(_CLONE[machine], _FIRST, (_ANY_BIT, 0, 1, _NEW_NAMESPACES), _deny(_EPERM))
    steps += _when_argument(_PRCTL[machine], _FIRST, (_EQUAL, 0, 1, kernel.PR_SET_PDEATHSIG), _deny(_EPERM))
    steps += _when_argument(_SOCKETPAIR[machine], _FIRST, (_EQUAL, 1, 0, _AF_UNIX), _deny(_EPERM))
    for request in _TERMINAL_INPUT:
        steps += _when_argument(_IOCTL[machine], _SECOND, (_EQUAL, 0, 1, request), _deny(_EPERM))
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _of_this_architecture(machine: str) -> list[_Step]:
    steps: list[_Step] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _ARCHITECTURE[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":  # x32 shares the architecture's name, with numbers from this one on
        steps += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]
    return steps


def _when_argument(number: int, offset: int, test: _Step, verdict: _Step) -> list[_Step]:
    """Apply `test` to an argument of one call; the number is loaded again afterwards."""
    return [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, offset), test, verdict, (_LOAD, 0, 0, _NUMBER)]


def _deny(error: int) -> _Step:
    return (_RETURN, 0, 0, _ERRNO | error)
