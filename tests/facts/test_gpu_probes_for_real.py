"""GPU, driver and boot probes in every shell, against programs that print what real ones do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from clusterkit.facts import NEEDS_ROOT, TIMED_OUT, Facts, Probe, gather
from clusterkit.inventory.model import Settings
from clusterkit.probes import GPU_PROCESSES
from clusterkit.probes.boot import BOOT
from clusterkit.probes.gpu_driver import GPU_DRIVER
from clusterkit.probes.gpu_errors import GPU_ERRORS
from clusterkit.probes.gpu_report import GPU_REPORT
from clusterkit.probes.logind import LOGIND
from clusterkit.probes.nvlink import NVLINK
from clusterkit.probes.rdma import RDMA
from clusterkit.probes.root import ROOT
from tests.facts.shells import Shell

# The parts of a real report around those that are read; a MIG slice has a memory of its own.
REPORT = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<timestamp>Fri Aug  4 11:44:30 2023</timestamp>
\t<driver_version>535.54.03</driver_version>
\t<gpu id="00000000:01:00.0">
\t\t<product_name>NVIDIA A100-SXM4-80GB</product_name>
\t\t<product_architecture>Ampere</product_architecture>
\t\t<persistence_mode>Enabled</persistence_mode>
\t\t<mig_mode>
\t\t\t<current_mig>Enabled</current_mig>
\t\t</mig_mode>
\t\t<mig_devices>
\t\t\t<mig_device>
\t\t\t\t<ecc_error_count>
\t\t\t\t\t<volatile_count>
\t\t\t\t\t\t<sram_uncorrectable>9</sram_uncorrectable>
\t\t\t\t\t</volatile_count>
\t\t\t\t</ecc_error_count>
\t\t\t\t<fb_memory_usage>
\t\t\t\t\t<used>12 MiB</used>
\t\t\t\t</fb_memory_usage>
\t\t\t</mig_device>
\t\t</mig_devices>
\t\t<uuid>GPU-513536b6-7d19-9063-b049-1e69664bb298</uuid>
\t\t<pci>
\t\t\t<pci_bus_id>00000000:01:00.0</pci_bus_id>
\t\t</pci>
\t\t<fb_memory_usage>
\t\t\t<total>81920 MiB</total>
\t\t\t<used>50 MiB</used>
\t\t</fb_memory_usage>
\t\t<compute_mode>Default</compute_mode>
\t\t<ecc_mode>
\t\t\t<current_ecc>Enabled</current_ecc>
\t\t</ecc_mode>
\t\t<ecc_errors>
\t\t\t<volatile>
\t\t\t\t<sram_correctable>4</sram_correctable>
\t\t\t\t<sram_uncorrectable>1</sram_uncorrectable>
\t\t\t\t<dram_uncorrectable>2</dram_uncorrectable>
\t\t\t</volatile>
\t\t\t<aggregate>
\t\t\t\t<sram_uncorrectable>70</sram_uncorrectable>
\t\t\t\t<dram_uncorrectable>70</dram_uncorrectable>
\t\t\t</aggregate>
\t\t</ecc_errors>
\t\t<remapped_rows>N/A</remapped_rows>
\t\t<fabric>
\t\t\t<state>N/A</state>
\t\t\t<status>N/A</status>
\t\t</fabric>
\t\t<supported_clocks>
CLOCKS
\t\t</supported_clocks>
\t</gpu>
</nvidia_smi_log>
""".replace("CLOCKS", "\t\t\t\t<supported_graphics_clock>1410 MHz</supported_graphics_clock>\n" * 30_000)

XIDS = "[1.0] NVRM: Xid (PCI:0000:9d:00): 79, pid='<unknown>', GPU has fallen off the bus."


def with_programs(shell: Shell, tmp_path: Path, **programs: str) -> Shell:
    """The same shell, with these programs before all others."""
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    for name, text in programs.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    return Shell(shell.command, {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"})


def ask(shell: Shell, *probes: Probe[Any]) -> Facts:
    return gather(shell, Settings("here", "127.0.0.1", connection="local"), probes)


def test_a_report_of_megabytes_is_cut_to_what_is_read(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    (gpu,) = ask(with_programs(shell, tmp_path, **{"nvidia-smi": f"cat {tmp_path}/report.xml"}), GPU_REPORT)[
        GPU_REPORT
    ]
    assert (gpu.name, gpu.bus, gpu.driver) == ("NVIDIA A100-SXM4-80GB", "0000:01:00", "535.54.03")
    assert (gpu.mig, gpu.ecc, gpu.persistence, gpu.fabric) == (True, True, True, "")
    assert (gpu.memory_used, gpu.uncorrected) == (50, 3)


def test_a_driver_that_refuses_says_why(shell: Shell, tmp_path: Path) -> None:
    text = "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
    facts = ask(with_programs(shell, tmp_path, **{"nvidia-smi": text}), GPU_REPORT, GPU_PROCESSES, NVLINK)
    for probe in (GPU_REPORT, GPU_PROCESSES, NVLINK):
        failure = facts.failure(probe)
        assert failure is not None
        assert (failure.status, "version mismatch" in failure.message) == (18, True)


def test_whose_process_it_is(shell: Shell, tmp_path: Path) -> None:
    app = f"echo {os.getpid()}, GPU-1, 900, python; echo 999999999, GPU-2, [N/A], [Not Found]"
    found = ask(with_programs(shell, tmp_path, **{"nvidia-smi": app}), GPU_PROCESSES)[GPU_PROCESSES]
    assert [(one.pid, one.uuid, one.memory) for one in found] == [
        (os.getpid(), "GPU-1", 900),
        (999999999, "GPU-2", None),
    ]
    own = Path("/proc/self/cmdline").read_bytes().decode().replace("\0", " ")
    assert own.startswith(found[0].command[:30])
    assert found[0].user
    assert (found[1].user, found[1].command) == ("", "[Not Found]")


# Its tool is on the PATH: the host has a driver that may have written into the log.
DRIVER = {"nvidia-smi": "exit 0"}


@pytest.mark.parametrize("source", ["dmesg", "journalctl"])
def test_errors_are_read_from_whatever_may_be_read(shell: Shell, tmp_path: Path, source: str) -> None:
    programs = {**DRIVER, "dmesg": "exit 1", "journalctl": "exit 0", source: f'echo "{XIDS}"; echo other'}
    (error,) = ask(with_programs(shell, tmp_path, **programs), GPU_ERRORS)[GPU_ERRORS]
    assert (error.code, error.bus, error.count) == (79, "0000:9d:00", 1)


def test_a_log_without_errors(shell: Shell, tmp_path: Path) -> None:
    quiet = with_programs(shell, tmp_path, **DRIVER, dmesg="echo usb 1-1: new device", journalctl="exit 1")
    assert ask(quiet, GPU_ERRORS)[GPU_ERRORS] == ()


def test_a_log_that_only_root_may_read(shell: Shell, tmp_path: Path) -> None:
    closed = with_programs(shell, tmp_path, **DRIVER, dmesg="exit 1", journalctl="exit 1")
    failure = ask(closed, GPU_ERRORS).failure(GPU_ERRORS)
    assert failure is not None
    assert failure.status == NEEDS_ROOT


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has NVIDIA's driver")
def test_without_a_driver_the_log_is_not_read(shell: Shell, tmp_path: Path) -> None:
    closed = with_programs(shell, tmp_path, dmesg="exit 1", journalctl="exit 1")
    assert ask(closed, GPU_ERRORS)[GPU_ERRORS] == ()


def test_a_driver_that_hangs_holds_nobody(shell: Shell, tmp_path: Path) -> None:
    hanging = Probe("gpu_report", GPU_REPORT.text(Settings("h", "h")), GPU_REPORT.parse, timeout=1)
    failure = ask(with_programs(shell, tmp_path, **{"nvidia-smi": "sleep 60"}), hanging).failure(hanging)
    assert failure is not None
    assert failure.status == TIMED_OUT


def test_what_is_asked_of_any_host_is_answered_here(shell: Shell) -> None:
    facts = ask(shell, BOOT, RDMA, ROOT, GPU_DRIVER, LOGIND)
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert facts[BOOT].uptime_s == pytest.approx(uptime, abs=60)
    assert facts[GPU_DRIVER].switches == 0 or facts[GPU_DRIVER].cards
    assert isinstance(facts[RDMA], tuple)
    assert not facts[LOGIND].drop_in
    if os.getuid() == 0:
        assert facts[ROOT]


def test_logind_is_asked_about_itself(shell: Shell, tmp_path: Path) -> None:
    text = "echo KillUserProcesses=yes; echo KillOnlyUsers=; echo KillExcludeUsers=nobody"
    assert ask(with_programs(shell, tmp_path, loginctl=text), LOGIND)[LOGIND].kills
