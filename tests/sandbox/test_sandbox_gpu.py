"""The stand-in nvidia-smi, run as a host runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from clusterkit.sandbox import gpu


def ask(answers: dict[str, Any], tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "gpus.json"
    path.write_text(json.dumps(answers))
    return subprocess.run(
        [sys.executable, "-I", "-S", str(gpu.SOURCE), str(path), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )


@pytest.fixture
def eight() -> dict[str, Any]:
    return gpu.answers("node01", 8)


def test_a_list_names_every_gpu_and_says_what_it_is(eight: dict[str, Any], tmp_path: Path) -> None:
    done = ask(eight, tmp_path, "-L")
    assert len(done.stdout.splitlines()) == 8
    assert done.stdout.startswith("GPU 0: NVIDIA H100 80GB HBM3 (sandbox stand-in) (UUID: GPU-")
    assert "there is no GPU here" in done.stderr


def test_csv_without_header_and_units(eight: dict[str, Any], tmp_path: Path) -> None:
    done = ask(
        eight, tmp_path, "--query-gpu=index,memory.total,driver_version", "--format=csv,noheader,nounits"
    )
    assert done.stdout.splitlines()[7] == "7, 81559, 550.90.07"


def test_csv_with_header_and_units(eight: dict[str, Any], tmp_path: Path) -> None:
    done = ask(
        eight, tmp_path, "--query-gpu", "index,memory.used,utilization.gpu", "--format", "csv", "-i", "1"
    )
    assert done.stdout.splitlines() == ["index, memory.used [MiB], utilization.gpu [%]", "1, 4 MiB, 0 %"]


def test_processes_of_a_gpu(eight: dict[str, Any], tmp_path: Path) -> None:
    eight["compute_apps"] = [{"gpu": 2, "pid": 4711, "process_name": "python", "used_memory": 900}]
    done = ask(eight, tmp_path, "--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader")
    assert done.stdout == f"4711, 900 MiB, {eight['gpus'][2]['uuid']}\n"


@pytest.mark.parametrize(
    "arguments", [["--query-gpu=nonsense", "--format=csv"], ["--query-gpu=index"], ["--frobnicate"]]
)
def test_what_it_cannot_answer_is_an_error(
    eight: dict[str, Any], tmp_path: Path, arguments: list[str]
) -> None:
    assert ask(eight, tmp_path, *arguments).returncode == 2


def test_a_failing_driver(eight: dict[str, Any], tmp_path: Path) -> None:
    eight["failure"] = {
        "exit_code": 18,
        "output": "Failed to initialize NVML: Driver/library version mismatch",
    }
    done = ask(eight, tmp_path, "-L")
    assert (done.returncode, done.stdout) == (
        18,
        "Failed to initialize NVML: Driver/library version mismatch\n",
    )


def test_no_gpus_left(eight: dict[str, Any], tmp_path: Path) -> None:
    eight["gpus"] = []
    assert ask(eight, tmp_path, "-L").returncode == 6


@pytest.mark.parametrize("arguments", [["-q"], []])
def test_reports_say_that_there_is_no_gpu(
    eight: dict[str, Any], tmp_path: Path, arguments: list[str]
) -> None:
    done = ask(eight, tmp_path, *arguments)
    assert "stand-in" in done.stdout
    assert "550.90.07" in done.stdout


def test_uuids_differ_between_hosts() -> None:
    assert gpu.answers("node01", 1)["gpus"][0]["uuid"] != gpu.answers("node02", 1)["gpus"][0]["uuid"]
    assert gpu.files("node01", 0, "python3") == ()


def test_the_xml_report(eight: dict[str, Any], tmp_path: Path) -> None:
    eight["gpus"][3].update({"mig.mode.current": "Enabled", "ecc.errors.uncorrected.volatile.total": 7})
    log = ElementTree.fromstring(ask(eight, tmp_path, "-q", "-x").stdout)
    gpus = log.findall("gpu")
    assert log.findtext("driver_version") == "550.90.07"
    assert [gpu.findtext("mig_mode/current_mig") for gpu in gpus[2:4]] == ["Disabled", "Enabled"]
    assert gpus[3].findtext("ecc_errors/volatile/dram_uncorrectable") == "7"
    assert gpus[0].findtext("fb_memory_usage/used") == "4 MiB"


def test_links(eight: dict[str, Any], tmp_path: Path) -> None:
    eight["gpus"][1]["nvlink.inactive"] = [2]
    lines = ask(eight, tmp_path, "nvlink", "--status").stdout.splitlines()
    assert len(lines) == 8 * 19
    assert lines[19:23] == [
        f"GPU 1: {eight['gpus'][1]['name']} (UUID: {eight['gpus'][1]['uuid']})",
        "\t Link 0: 26.562 GB/s",
        "\t Link 1: 26.562 GB/s",
        "\t Link 2: <inactive>",
    ]
