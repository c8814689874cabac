"""The process kind: the same protocol without isolation, and only by name."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from mixharness.sandboxes import get_provider
from mixharness.sandboxes.base import Mount, Sandbox, SandboxSpec


@pytest_asyncio.fixture
async def box(tmp_path: Path) -> AsyncIterator[Sandbox]:
    for name in ("workspace", "seed", "program"):
        (tmp_path / name).mkdir()
    (tmp_path / "seed/.settings").write_text("seeded")
    (tmp_path / "program/tool").write_text("#!/bin/sh\necho tool $1 $WHERE\n")
    (tmp_path / "program/tool").chmod(0o755)
    mounts = (Mount(tmp_path / "program", "/opt/program"),)
    spec = SandboxSpec(
        "unit", tmp_path / "workspace", mounts=mounts, seed=tmp_path / "seed", env={"WHERE": "/workspace/x"}
    )
    with pytest.warns(UserWarning, match="isolates nothing"):
        sandbox = await get_provider("process").create(spec)
    async with sandbox:
        yield sandbox


async def test_paths_of_the_inside_become_the_hosts(box: Sandbox, tmp_path: Path) -> None:
    result = await box.exec(["/opt/program/tool", "--file=/workspace/a", "/workspaces", "/opt/programs"])
    assert result.stdout == f"tool --file={tmp_path}/workspace/a {tmp_path}/workspace/x\n"
    shown = await box.exec(["bash", "-c", "pwd; cat $HOME/.settings; echo $1 $2", "x", "/workspaces", "/a/workspace"])
    assert shown.stdout == f"{tmp_path}/workspace\nseeded/workspaces /a/workspace\n"


async def test_results(box: Sandbox) -> None:
    assert (await box.exec(["cat"], stdin=b"in")).stdout == "in"
    assert (await box.exec(["bash", "-c", "echo e >&2; exit 4"])).exit_code == 4
    assert (await box.exec(["bash", "-c", "kill -9 $$"])).exit_code == 137
    missing = await box.exec(["/opt/program/none"])
    assert missing.exit_code == 127 and "No such file" in missing.stderr


async def test_the_time_limit_finds_daemons(box: Sandbox) -> None:
    result = await box.exec(["bash", "-c", "setsid sleep 987 & sleep 986"], timeout_s=0.3)
    assert result.timed_out and result.exit_code is None
    left = subprocess.run(["pgrep", "-f", "^sleep 98[67]$"], check=False, capture_output=True, text=True)
    assert all("Z" in Path(f"/proc/{pid}/status").read_text().split("State:")[1][:4] for pid in left.stdout.split())


async def test_a_taken_port_gives_a_free_one(box: Sandbox) -> None:
    first, second = await box.listen(0), None
    port = first.getsockname()[1]
    try:
        second = await box.listen(port)
        assert second.getsockname()[1] not in (0, port)
        code = f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {port})))"
        assert (await box.exec([sys.executable, "-c", code])).stdout == "0\n"
    finally:
        first.close()
        if second:
            second.close()


async def test_cancellation_ends_the_program(box: Sandbox) -> None:
    running = asyncio.create_task(box.exec(["sleep", "985"]))
    await asyncio.sleep(0.1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0.05)
    assert subprocess.run(["pgrep", "-f", "^sleep 985$"], check=False).returncode == 1
