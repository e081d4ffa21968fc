"""Each GPU's modes and health: all that `nvidia-smi -q` says and a job depends on, from one call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from clusterkit.facts import NOT_FOUND, Output, Probe


@dataclass(frozen=True)
class GpuReport:
    """One GPU. None where the card or the driver does not have the property ("N/A").

    `bus` is its PCI address as "0000:1b:00", memory in MiB. `uncorrected` counts memory errors since the
    driver was loaded that ECC could not correct. `recovery` is what the driver wants done ("" for nothing).
    `fabric` is "" where there is none, else its state: "Completed" once the GPU can reach the others.
    """

    uuid: str
    name: str
    bus: str
    architecture: str
    driver: str
    persistence: bool | None
    mig: bool | None
    compute_mode: str
    memory_used: int | None
    ecc: bool | None
    uncorrected: int | None
    repair_pending: bool
    repair_failed: bool
    recovery: str
    fabric: str


# A GPU's report has thousands of lines, most of them clocks: only these elements travel. What encloses
# them does too, so that the memory of a MIG slice is not taken for that of the GPU.
_ELEMENTS = (
    *("nvidia_smi_log", "driver_version", "gpu", "product_name", "product_architecture", "uuid", "pci"),
    *(
        "pci_bus_id",
        "persistence_mode",
        "compute_mode",
        "mig_mode",
        "current_mig",
        "mig_devices",
        "mig_device",
    ),
    *("fb_memory_usage", "bar1_memory_usage", "cc_protected_memory_usage", "used"),
    *("ecc_mode", "current_ecc", "ecc_errors", "volatile", "aggregate", "single_bit", "double_bit", "total"),
    *("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable"),
    *("sram_threshold_exceeded", "remapped_rows", "remapped_row_pending", "remapped_row_failure"),
    *("retired_pages", "pending_blacklist", "pending_retirement", "channel_repair_pending"),
    *("gpu_reset_status", "reset_required", "gpu_recovery_action", "fabric", "state", "status"),
)

_SHELL = rf"""
report=$(nvidia-smi -q -x); status=$?
if [ "$status" != 0 ]; then echo "$report"; exit "$status"; fi
echo "$report" | sed 's/^[[:space:]]*//' | grep -E '^</?({"|".join(_ELEMENTS)})[ >]'
"""


def _parse(output: Output) -> tuple[GpuReport, ...]:
    """By GPU index, which is the order of the report."""
    if output.status == NOT_FOUND:
        return ()
    if "<!" in output.stdout:
        raise ValueError("not a report of nvidia-smi")
    try:
        log = ElementTree.fromstring(output.stdout)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None
    driver = _text(log, "driver_version")
    return tuple(_gpu(gpu, driver) for gpu in log.findall("gpu"))


def _gpu(gpu: ElementTree.Element, driver: str) -> GpuReport:
    return GpuReport(
        uuid=_text(gpu, "uuid"),
        name=_text(gpu, "product_name"),
        bus=bus(_text(gpu, "pci/pci_bus_id")),
        architecture=_text(gpu, "product_architecture"),
        driver=driver,
        persistence=_on(gpu, "persistence_mode"),
        mig=_on(gpu, "mig_mode/current_mig"),
        compute_mode=_text(gpu, "compute_mode"),
        memory_used=_number(_text(gpu, "fb_memory_usage/used")),
        ecc=_on(gpu, "ecc_mode/current_ecc"),
        uncorrected=_uncorrected(gpu.find("ecc_errors/volatile")),
        repair_pending=any(_yes(gpu, path) for path in _PENDING),
        repair_failed=any(_yes(gpu, path) for path in _FAILED),
        recovery=_recovery(gpu),
        fabric=_fabric(gpu),
    )


_PENDING = (
    "remapped_rows/remapped_row_pending",
    "retired_pages/pending_retirement",
    "retired_pages/pending_blacklist",
    "ecc_errors/channel_repair_pending",
)
_FAILED = ("remapped_rows/remapped_row_failure", "ecc_errors/aggregate/sram_threshold_exceeded")


def bus(address: str) -> str:
    """A PCI address as the kernel log writes it: `00000000:1B:00.0` is `0000:1b:00`."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:]:0>4}:{rest.partition('.')[0]}" if rest else ""


def _text(element: ElementTree.Element, path: str) -> str:
    """The element's text; "" where there is none, or where it says that there is nothing to say."""
    text = (element.findtext(path) or "").strip()
    return (
        ""
        if text in ("N/A", "None", "[N/A]", "[Not Supported]", "Requested functionality has been deprecated")
        else text
    )


def _on(element: ElementTree.Element, path: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(_text(element, path))


def _yes(element: ElementTree.Element, path: str) -> bool:
    return _text(element, path) == "Yes"


def _number(text: str) -> int | None:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else None


def _uncorrected(volatile: ElementTree.Element | None) -> int | None:
    """Newer cards count by kind of memory, older ones have a total of double bit errors."""
    if volatile is None:
        return None
    counts = [_number(child.text or "") for child in volatile if "uncorrectable" in child.tag]
    counts.append(_number(_text(volatile, "double_bit/total")))
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _recovery(gpu: ElementTree.Element) -> str:
    action = _text(gpu, "gpu_recovery_action")
    return action or ("Reset" if _yes(gpu, "gpu_reset_status/reset_required") else "")


def _fabric(gpu: ElementTree.Element) -> str:
    """`Completed` with a bad status is not completed."""
    state, status = _text(gpu, "fabric/state"), _text(gpu, "fabric/status")
    return status if state == "Completed" and status not in ("", "Success") else state


GPU_REPORT = Probe("gpu_report", _SHELL, _parse, timeout=20, accepts=(0, NOT_FOUND), about="nvidia-smi -q")
