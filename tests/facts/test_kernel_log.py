"""The kernel log of a span of time, from the journal or from the kernel's own ring."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from clusterkit.facts import Facts, Output, gather
from clusterkit.inventory.model import Settings
from clusterkit.probes.kernel_log import KernelLine, kernel_log
from tests.facts.shells import Shell

SETTINGS = Settings("here", "127.0.0.1", connection="local")

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="hosts are Linux")


def parsed(*lines: str) -> tuple[KernelLine, ...]:
    return kernel_log(0, 1).parse(Output(0, "".join(f"{line}\n" for line in lines)))


def test_the_journal_s_lines_have_their_own_time() -> None:
    line = "1796074799.250000 gpu01 kernel: Out of memory: Killed process 4711 (python3)"
    assert parsed("now 1796074800 5000.0", line) == (
        KernelLine(1796074799.25, "Out of memory: Killed process 4711 (python3)"),
    )


def test_the_ring_counts_from_the_boot() -> None:
    lines = ("[ 4990.500000] NVRM: Xid (PCI:0000:3b:00): 79", "<4>[ 4991.000000] next", "no time")
    found = parsed("now 1796074800 5000.0", *lines)
    assert found == (
        KernelLine(1796074790.5, "NVRM: Xid (PCI:0000:3b:00): 79"),
        KernelLine(1796074791.0, "next"),
    )


def test_nothing_in_that_time() -> None:
    assert parsed("now 1796074800 5000.0") == ()


def asked(shell: Shell, tmp_path: Path, since: float, until: float, **programs: str) -> Facts:
    """The probe on this machine, with these programs first in its PATH."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, body in programs.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    return gather(Shell(shell.command, env), SETTINGS, [kernel_log(since, until)])


@needs_linux
def test_only_the_lines_of_that_time_are_sent(shell: Shell, tmp_path: Path) -> None:
    up = float(Path("/proc/uptime").read_text().split()[0])
    lines = "\\n".join(f"[{up - ago:12.6f}] {ago} s ago" for ago in (300, 40, 10))
    now = time.time()
    facts = asked(shell, tmp_path, now - 60, now - 20, dmesg=f"printf '{lines}\\n'", journalctl="exit 1")
    (line,) = facts[kernel_log(0, 1)]
    assert line.text == "40 s ago"
    assert line.at == pytest.approx(now - 40, abs=3)


@needs_linux
def test_the_journal_is_asked_for_that_time(shell: Shell, tmp_path: Path) -> None:
    journal = (
        'case "$*" in *"--since @1796074740 --until @1796074801"*) echo "1796074750.5 h kernel: one";; esac'
    )
    facts = asked(shell, tmp_path, 1796074740, 1796074800.2, dmesg="exit 0", journalctl=journal)
    assert facts[kernel_log(0, 1)] == (KernelLine(1796074750.5, "one"),)


@needs_linux
def test_a_log_that_only_root_may_read(shell: Shell, tmp_path: Path) -> None:
    facts = asked(shell, tmp_path, 1, 2, dmesg="exit 1", journalctl="exit 1")
    failure = facts.failure(kernel_log(0, 1))
    assert failure is not None
    assert failure.message == "the kernel log: only root can read this"
