"""The system call filter of every sandbox, as BPF instructions (seccomp(2), linux/bpf_common.h, linux/filter.h).

Refused: what makes namespaces, mounts or kernel objects, loads code into the kernel, reaches other processes' limits,
opens files by handle, sets clocks; every socket family but unix, internet and netlink, for vsock reaches a virtual
machine's host from any network namespace. Docker's own default filter stays in force below this one.
"""

from __future__ import annotations

import errno
import platform
import struct

LOAD_WORD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
NUMBER, ARCH, ARGUMENT_0 = 0, 4, 16
"""Offsets in struct seccomp_data; of an argument, the low word on little-endian machines."""
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""
X32 = 0x40000000

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
SYSCALLS = {
    "clone": (56, 220),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "prlimit64": (302, 261),
    "clone3": (435, 435),
}
REFUSED = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "chroot": (161, 51),
    "clock_adjtime": (305, 266), "clock_settime": (227, 112), "delete_module": (176, 106),
    "fanotify_init": (300, 262), "finit_module": (313, 273), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fsopen": (430, 430), "fspick": (433, 433), "init_module": (175, 105), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "ioperm": (173, None), "iopl": (172, None),
    "kcmp": (312, 272), "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219),
    "lookup_dcookie": (212, 18), "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "perf_event_open": (298, 241), "pivot_root": (155, 41), "process_madvise": (440, 440), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "reboot": (169, 142), "request_key": (249, 218), "setdomainname": (171, 162),
    "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170), "swapoff": (168, 225),
    "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "vhangup": (153, 58),
}  # fmt: skip
"""Name → number on x86_64 and aarch64 (the kernel's syscall tables)."""


def program(machine: str = platform.machine()) -> bytes:
    """The filter for a machine, ready for PR_SET_SECCOMP.

    Raises:
        ValueError: a machine whose system calls aren't listed.
    """
    if machine not in ARCHITECTURES:
        raise ValueError(f"no system call filter for {machine!r}; known: {', '.join(ARCHITECTURES)}")
    arch, column = ARCHITECTURES[machine]
    number = {name: numbers[column] for name, numbers in SYSCALLS.items()}
    refused = [value for numbers in REFUSED.values() if (value := numbers[column]) is not None]
    deny = _return(ERRNO | errno.EPERM)
    code = [_load(ARCH), _jump(EQUAL, arch, 1, 0), _return(KILL), _load(NUMBER)]
    code += [_jump(AT_LEAST, X32, 0, 1), _return(ERRNO | errno.ENOSYS)]
    code += [_jump(EQUAL, number["clone3"], 0, 1), _return(ERRNO | errno.ENOSYS)]
    for value in refused:
        code += [_jump(EQUAL, value, 0, 1), deny]
    code += [_jump(EQUAL, number["clone"], 0, 3), _load(ARGUMENT_0), _jump(ANY_BIT, NEW_NAMESPACES, 0, 1), deny]
    code += [_load(NUMBER), _jump(EQUAL, number["prlimit64"], 0, 3), _load(ARGUMENT_0), _jump(EQUAL, 0, 1, 0), deny]
    code += [_load(NUMBER), _jump(EQUAL, number["socket"], 1, 0), _jump(EQUAL, number["socketpair"], 0, 6)]
    code += [_load(ARGUMENT_0), *(_jump(EQUAL, family, 4 - i, 0) for i, family in enumerate(FAMILIES))]
    code += [_return(ERRNO | errno.EAFNOSUPPORT), _return(ALLOW)]
    return b"".join(code)


def _instruction(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, k)


def _load(offset: int) -> bytes:
    return _instruction(LOAD_WORD, offset)


def _jump(kind: int, value: int, yes: int, no: int) -> bytes:
    return _instruction(kind, value, yes, no)


def _return(value: int) -> bytes:
    return _instruction(RETURN, value)
