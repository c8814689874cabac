"""The filter's decisions, by an interpreter of the BPF subset it uses."""

from __future__ import annotations

import errno
import struct

import pytest

from mixharness.sandboxes.seccomp import ALLOW, ARCHITECTURES, ERRNO, KILL, REFUSED, SYSCALLS, program

EPERM, ENOSYS, EAFNOSUPPORT = (ERRNO | code for code in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))


def decide(machine: str, number: int, argument: int = 0, arch: int | None = None) -> int:
    """Runs the filter on one system call."""
    code = list(struct.iter_unpack("=HBBI", program(machine)))
    data = struct.pack("=IIQ6Q", number, arch if arch is not None else ARCHITECTURES[machine][0], 0, argument, *[0] * 5)
    accumulator, at = 0, 0
    while True:
        kind, yes, no, k = code[at]
        at += 1
        match kind:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, k)
            case 0x06:
                return int(k)
            case 0x15:
                at += yes if accumulator == k else no
            case 0x35:
                at += yes if accumulator >= k else no
            case 0x45:
                at += yes if accumulator & k else no
            case _:
                raise AssertionError(f"unknown instruction {kind:#x}")


@pytest.fixture(params=list(ARCHITECTURES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_listed_call_is_refused_and_no_other(machine: str) -> None:
    column = ARCHITECTURES[machine][1]
    refused = {numbers[column] for numbers in REFUSED.values()} - {None}
    special = {numbers[column] for numbers in SYSCALLS.values()}
    for number in range(500):
        if number in refused:
            assert decide(machine, number) == EPERM, number
        elif number not in special:
            assert decide(machine, number) == ALLOW, number


def test_clone_makes_threads_and_processes_but_no_namespaces(machine: str) -> None:
    clone = SYSCALLS["clone"][ARCHITECTURES[machine][1]]
    for flags in (17, 0x3D0F00, 0x01200011):  # fork, pthread_create, posix_spawn
        assert decide(machine, clone, flags) == ALLOW
    for bit in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(machine, clone, 17 | bit) == EPERM
    assert decide(machine, SYSCALLS["clone3"][0]) == ENOSYS  # libc then uses clone


def test_socket_families(machine: str) -> None:
    column = ARCHITECTURES[machine][1]
    for call in ("socket", "socketpair"):
        allowed = {family for family in range(64) if decide(machine, SYSCALLS[call][column], family) == ALLOW}
        assert allowed == {1, 2, 10, 16}
    assert decide(machine, SYSCALLS["socket"][column], 40) == EAFNOSUPPORT  # vsock


def test_limits_of_other_processes(machine: str) -> None:
    prlimit = SYSCALLS["prlimit64"][ARCHITECTURES[machine][1]]
    assert decide(machine, prlimit, 0) == ALLOW
    assert decide(machine, prlimit, 1) == EPERM


def test_foreign_call_tables_are_no_way_around() -> None:
    assert decide("x86_64", 0, arch=0x40000003) == KILL  # i386
    assert decide("x86_64", 0x40000000 + 272) == ENOSYS  # x32


def test_an_unknown_machine_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"riscv64.*x86_64"):
        program("riscv64")
