"""What a hostile program tries from inside: none of it may work, in docker nor in bubblewrap."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from mixharness.sandboxes import get_provider
from mixharness.sandboxes.base import Mount, Sandbox, SandboxLimits, SandboxSpec
from mixharness.sandboxes.snapshot import restore, snapshot

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]
LIMITS = SandboxLimits(memory_mb=256, pids=64, tmp_mb=16)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["docker", "bubblewrap"])
async def box(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandbox]:
    root = tmp_path_factory.mktemp("hostile")
    (root / "workspace").mkdir()
    (root / "program").mkdir()
    (root / "program/tool").write_text("original")
    os.chmod(root / "program/tool", 0o666)  # only the mount protects it
    spec = SandboxSpec("hostile", root / "workspace", mounts=(Mount(root / "program", "/opt/program"),), limits=LIMITS)
    async with await get_provider(request.param).create(spec) as sandbox:
        yield sandbox


async def python(box: Sandbox, code: str) -> str:
    """Output of a program that must not crash."""
    result = await box.exec(["python3", "-c", textwrap.dedent(code)], timeout_s=60)
    assert result.exit_code == 0, result
    return result.stdout


async def fails(box: Sandbox, script: str) -> str:
    """stderr of a script that must fail."""
    result = await box.exec(["bash", "-c", script], timeout_s=60)
    assert result.exit_code not in (0, None), result
    return result.stderr


async def test_no_capability_no_new_privileges_a_filter(box: Sandbox) -> None:
    lines = (await python(box, "print(open('/proc/self/status').read())")).splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    assert status["Uid"].split() == ["1000"] * 4 and status["Gid"].split() == ["1000"] * 4


async def test_set_id_programs_give_nothing(box: Sandbox) -> None:
    assert (await box.exec(["find", "/", "-xdev", "-perm", "/6000", "-type", "f"])).stdout == ""
    script = "cp /usr/bin/id /workspace/su && chmod 6755 /workspace/su && /workspace/su -u; rm /workspace/su"
    assert (await box.exec(["bash", "-c", script])).stdout == "1000\n"


SYSCALLS = {
    "unshare a user namespace": "libc.unshare(0x10000000)",
    "unshare mounts": "libc.unshare(0x20000)",
    "clone with a user namespace": "libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)",
    "mount": "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)",
    "umount": "libc.umount2(b'/tmp', 2)",
    "chroot": "libc.chroot(b'/tmp')",
    "pivot_root": "libc.syscall(155, b'/tmp', b'/tmp')",
    "enter a namespace": "libc.setns(os.open('/proc/self/ns/net', 0), 0)",
    "load BPF": "libc.syscall(321, 0, 0, 0)",
    "io_uring": "libc.syscall(425, 8, ctypes.create_string_buffer(256))",
    "userfaultfd": "libc.syscall(323, 0)",
    "perf events": "libc.syscall(298, ctypes.create_string_buffer(256), 0, -1, -1, 0)",
    "kernel keys": "libc.syscall(250, 0, -3, 0)",
    "open by handle": "libc.syscall(304, -100, ctypes.create_string_buffer(256), 0)",
    "the kernel log": "libc.syscall(103, 3, ctypes.create_string_buffer(256), 256)",
    "set the clock": "libc.settimeofday(ctypes.create_string_buffer(16), None)",
    "set the host name": "libc.sethostname(b'evil', 4)",
    "trace PID 1": "libc.ptrace(16, 1, 0, 0)",
    "limit PID 1": "libc.syscall(302, 1, 0, ctypes.create_string_buffer(16), 0)",
    "become root": "libc.setuid(0)",
    "become another group": "libc.setgroups(1, (ctypes.c_uint * 1)(0))",
    "make a device": "libc.mknod(b'/tmp/disk', 0o60666, 0x100)",
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the calls are given by their x86_64 numbers")
async def test_system_calls_that_must_be_refused(box: Sandbox) -> None:
    """The kernel's permission errors, not some other failure: EPERM, EACCES, ENOSYS."""
    code = f"""
    import ctypes, json, os
    libc = ctypes.CDLL(None, use_errno=True)
    calls = {SYSCALLS!r}
    print(json.dumps({{name: (eval(call), os.strerror(ctypes.get_errno())) for name, call in calls.items()}}))
    """
    results = json.loads(await python(box, code))
    refusals = ("Operation not permitted", "Permission denied", "Function not implemented")
    assert {name: end for name, end in results.items() if end[0] != -1 or end[1] not in refusals} == {}


async def test_sockets_that_leave_the_network_namespace_do_not_exist(box: Sandbox) -> None:
    """vsock reaches the host of a virtual machine; packet and bluetooth sockets the hardware."""
    code = """
    import socket
    for family in range(1, 46):
        for kind in (1, 2, 3, 5):
            try:
                socket.socket(family, kind).close()
            except OSError:
                continue
            print(family)
    """
    assert set((await python(box, code)).split()) <= {"1", "2", "10", "16"}


@contextmanager
def listening(host: str, family: int = socket.AF_INET) -> Iterator[int]:
    """A port of the host that accepts and answers."""
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind((host, 0))
        server.listen()

        def answer() -> None:
            try:
                while True:
                    server.accept()[0].close()
            except OSError:
                return

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


async def test_no_network_at_all(box: Sandbox) -> None:
    own = socket.gethostbyname(socket.gethostname())
    with listening("0.0.0.0") as port:
        targets = [("127.0.0.1", port), (own, port), ("172.17.0.1", port), ("169.254.169.254", 80), ("1.1.1.1", 53)]
        code = f"""
        import socket
        for target in {targets!r}:
            try:
                socket.create_connection(target, timeout=2); print('reached', target)
            except OSError as error:
                assert error.errno in (101, 111, 113), error
        for name in ('example.org', 'metadata.google.internal', 'host.docker.internal'):
            try:
                socket.getaddrinfo(name, 80); print('resolved', name)
            except socket.gaierror:
                pass
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            udp.sendto(b'x', ('8.8.8.8', 53)); print('sent')
        except OSError:
            pass
        print(socket.if_nameindex())
        """
        assert await python(box, code) == "[(1, 'lo')]\n"


async def test_sockets_of_the_host_are_out_of_reach(box: Sandbox) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0mixharness-test-abstract")
        server.listen()
        code = """
        import os, socket
        names = ['\\0mixharness-test-abstract', '/run/mixharness/control', '/run/containerd/containerd.sock']
        names += ['/var/run/docker.sock', '/run/docker.sock']
        names += [line.split()[-1] for line in open('/proc/net/unix').readlines()[1:] if '/' in line or '@' in line]
        for name in names:
            try:
                socket.socket(socket.AF_UNIX).connect(name); print('reached', name)
            except OSError:
                pass
        """
        assert await python(box, code) == ""


async def test_two_sandboxes_cannot_meet(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    async with await get_provider(box.kind).create(SandboxSpec("neighbour", tmp_path / "w", limits=LIMITS)) as other:
        theirs = await other.listen(8080)
        try:
            code = "import socket; print(socket.socket().connect_ex(('127.0.0.1', 8080)))"
            assert await python(box, code) == "111\n"
            assert await python(other, code) == "0\n"
        finally:
            theirs.close()
        namespaces = "readlink /proc/self/ns/{net,pid,ipc,uts,mnt,cgroup}"
        here = (await box.exec(["bash", "-c", namespaces])).stdout.split()
        there = (await other.exec(["bash", "-c", namespaces])).stdout.split()
    host = [os.readlink(f"/proc/self/ns/{name}") for name in ("net", "pid", "ipc", "uts", "mnt", "cgroup")]
    assert len({*here, *there, *host}) == 18


async def test_proc_shows_and_changes_nothing_of_the_host(box: Sandbox) -> None:
    assert len(await python(box, "import os; print(*[name for name in os.listdir('/proc') if name.isdigit()])")) < 20
    for path in (
        "sys/kernel/core_pattern",
        "sys/kernel/hostname",
        "sys/vm/overcommit_memory",
        "sysrq-trigger",
        "1/oom_score_adj",
    ):
        await fails(box, f"echo 1 > /proc/{path}")
    for path in ("kcore", "1/environ", "1/mem", "1/root/etc/passwd", "kmsg"):
        await fails(box, f"head -c 1 /proc/{path} | grep -q .")
    await fails(box, "ls /proc/1/fd/ /proc/1/cwd/")
    await fails(box, "echo x > /sys/kernel/uevent_helper")
    await fails(box, "cat /dev/sda /dev/vda /dev/mem /dev/kmsg | grep -q .")


async def test_pid_1_survives_what_programs_send_it(box: Sandbox) -> None:
    script = "for s in $(seq 64); do kill -$s 1 2>/dev/null; done; kill -9 -1"
    await box.exec(["bash", "-c", script], timeout_s=20)
    script = "pkill -9 -f init.pyc; pkill -STOP python3; true"
    await box.exec(["bash", "-c", script], timeout_s=20)
    assert await python(box, "print('alive')") == "alive\n"


async def test_host_processes_of_the_same_user_survive(box: Sandbox) -> None:
    user = 1000 if os.geteuid() == 0 else os.geteuid()
    with subprocess.Popen(["sleep", "60"], user=user) as bystander:
        await box.exec(["bash", "-c", "pkill -9 sleep; kill -9 -1"], timeout_s=20)
        await box.kill_all()
        assert bystander.poll() is None
        bystander.kill()


async def test_read_only_mounts_hold_even_for_writable_files(box: Sandbox) -> None:
    await fails(box, "echo evil > /opt/program/tool")
    await fails(box, "rm /opt/program/tool")
    await fails(box, "ln -f /opt/program/tool /workspace/hard")
    assert (await box.exec(["cat", "/opt/program/tool"])).stdout == "original"


async def test_flooding_the_output_is_bounded(box: Sandbox) -> None:
    result = await box.exec(["bash", "-c", "yes | head -c 200000000; yes >&2"], timeout_s=3, output_limit=10_000)
    assert result.timed_out and len(result.stdout) < 10_100 and len(result.stderr) < 10_100


async def test_a_workspace_full_of_traps_is_snapshot_safely(box: Sandbox, tmp_path: Path) -> None:
    """Links to the host's files and to /proc, a fifo, a set-uid file, folders without rights, odd names."""
    script = r"""
    ln -s /etc/shadow shadow; ln -s / root; ln -s /proc/self/environ env; ln -s ../../../../../../etc up
    mkfifo pipe; cp /usr/bin/id su; chmod 4755 su
    mkdir -p closed/inner; echo x > closed/inner/f; chmod 000 closed/inner closed
    touch -- '-rf' $'new\nline' $'bad\xff'; python3 -c "import socket; socket.socket(1).bind('sock')"
    """
    assert (await box.exec(["bash", "-c", script])).exit_code == 0
    await box.kill_all()
    workspace: Path = box.spec.workspace  # type: ignore[attr-defined]
    snapshot(workspace, tmp_path / "s.tar.zst")
    restore(tmp_path / "s.tar.zst", tmp_path / "back")
    back = tmp_path / "back"
    assert os.readlink(back / "shadow") == "/etc/shadow" and os.readlink(back / "root") == "/"
    assert (back / "closed/inner/f").read_text() == "x\n"
    assert not (back / "pipe").exists() and not (back / "sock").exists()
    assert (back / "su").stat().st_mode & 0o7777 == 0o755
    assert {b"-rf", b"new\nline", b"bad\xff"} <= set(os.listdir(os.fsencode(back)))
    await box.exec(["bash", "-c", "chmod -R 700 closed; rm -rf -- * "])
