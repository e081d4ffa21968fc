"""The `nvidia-smi` of sandbox hosts: answers from a file, and says on stderr that no GPU is behind it.

Runs on hosts, standard library only: `nvidia_smi.py ANSWERS ARGUMENTS…`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

UNITS = {
    "memory": "MiB",
    "utilization": "%",
    "power": "W",
    "clocks": "MHz",
    "used_memory": "MiB",
    "used_gpu_memory": "MiB",
}
ALIASES = {
    "gpu_uuid": "uuid",
    "gpu_name": "name",
    "gpu_bus_id": "pci.bus_id",
    "used_gpu_memory": "used_memory",
}
APP_FIELDS = {"pid", "name", "process_name", "used_memory", "gpu_uuid", "gpu_name", "gpu_bus_id"}
NOTICE = "nvidia-smi: stand-in of a clusterkit sandbox; there is no GPU here"


class Refused(Exception):
    """An argument that cannot be answered; the text is what the real program says."""


def main(path: str, arguments: list[str]) -> int:
    """The exit status, after the answer has been printed."""
    print(NOTICE, file=sys.stderr)
    with open(path, encoding="utf-8") as file:
        answers = json.load(file)
    time.sleep(answers.get("hang_s", 0))
    failure = answers.get("failure")
    if failure:
        print(failure["output"])
        return int(failure["exit_code"])
    try:
        lines = answer(answers, arguments)
    except Refused as error:
        print(error)
        return 2
    if not answers["gpus"]:
        print("No devices were found")
        return 6
    print("\n".join(lines))
    return 0


def answer(answers: dict[str, Any], arguments: list[str]) -> list[str]:
    """The lines of one invocation."""
    options = parse(arguments)
    gpus = selected(answers["gpus"], options.get("-i"))
    gpus = [
        {**gpu, "driver_version": answers["driver_version"], "count": len(answers["gpus"])} for gpu in gpus
    ]
    for flag in ("--query-gpu", "--query-compute-apps"):
        if flag in options:
            rows = gpus if flag == "--query-gpu" else compute_apps(answers, gpus)
            return table(rows, options[flag], options.get("--format", ""), apps=flag != "--query-gpu")
    if "nvlink" in options:
        return links(gpus)
    if "-L" in options:
        return [f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})" for gpu in gpus]
    if "-q" in options:
        return xml(answers, gpus) if "-x" in options else report(answers, gpus)
    return summary(answers, gpus)


def parse(arguments: list[str]) -> dict[str, str]:
    """Options with their values; both `--query-gpu=x` and `--query-gpu x`."""
    long = {"--list-gpus": "-L", "--query": "-q", "--id": "-i", "--xml-format": "-x", "-s": "--status"}
    valued = ("--query-gpu", "--query-compute-apps", "--format", "-i")
    options = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        name = long.get(name, name)
        if name in valued and not equals and rest:
            value = rest.pop(0)
        elif name not in (*valued, "-L", "-q", "-x", "nvlink", "--status"):
            raise Refused(
                f"Invalid combination of input arguments: {word} (the sandbox's stand-in does not know it)"
            )
        options[name] = value
    return options


def selected(gpus: list[dict[str, Any]], wanted: str | None) -> list[dict[str, Any]]:
    """The GPUs that `-i` names by index, UUID or bus id."""
    if wanted is None:
        return gpus
    names = wanted.split(",")
    found = [gpu for gpu in gpus if {str(gpu["index"]), gpu["uuid"], gpu.get("pci.bus_id")} & set(names)]
    if len(found) != len(names):
        raise Refused("No devices were found")
    return found


def compute_apps(answers: dict[str, Any], gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The processes on those GPUs: `{"gpu": INDEX, "pid": N, "process_name": …, "used_memory": MIB}`."""
    by_index = {gpu["index"]: gpu for gpu in gpus}
    return [{**by_index[app["gpu"]], **app} for app in answers["compute_apps"] if app["gpu"] in by_index]


def table(rows: list[dict[str, Any]], query: str, style: str, apps: bool) -> list[str]:
    """CSV as the real program prints it."""
    styles = [part.strip() for part in style.split(",")]
    if "csv" not in styles:
        raise Refused('"--format=" switch is missing. Use "csv".')
    fields = [field.strip() for field in query.split(",") if field.strip()]
    known = (
        APP_FIELDS
        if apps
        else {"driver_version", "count", "gpu_uuid", "gpu_name", "gpu_bus_id", *(rows[0] if rows else ())}
    )
    for field in fields:
        if field not in known:
            raise Refused(f'Field "{field}" is not a valid field to query.')
    plain = "nounits" in styles
    lines = [
        ", ".join(
            shown(row.get(field, row.get(ALIASES.get(field, ""), "[N/A]")), field, plain) for field in fields
        )
        for row in rows
    ]
    if "noheader" in styles:
        return lines
    return [", ".join(f"{field} [{unit(field)}]" if unit(field) else field for field in fields), *lines]


def unit(field: str) -> str:
    """The unit of a field's values, or nothing."""
    return UNITS.get(field) or UNITS.get(field.partition(".")[0], "")


def shown(value: Any, field: str, plain: bool) -> str:
    """A value with its unit."""
    text = f"{value:.2f}" if isinstance(value, float) else str(value)
    return text if plain or not unit(field) or text.startswith("[") else f"{text} {unit(field)}"


def report(answers: dict[str, Any], gpus: list[dict[str, Any]]) -> list[str]:
    """The few lines of `-q` that programs read."""
    lines = [
        "",
        "==============NVSMI LOG==============",
        "",
        f"Note                                      : {NOTICE}",
    ]
    lines.append(f"Driver Version                            : {answers['driver_version']}")
    lines.append(f"CUDA Version                              : {answers['cuda_version']}")
    lines += ["", f"Attached GPUs                             : {len(answers['gpus'])}"]
    for gpu in gpus:
        lines += [
            f"GPU {gpu.get('pci.bus_id', gpu['index'])}",
            f"    Product Name                          : {gpu['name']}",
        ]
        lines.append(f"    GPU UUID                              : {gpu['uuid']}")
        lines += [
            "    FB Memory Usage",
            f"        Total                             : {gpu.get('memory.total', 'N/A')} MiB",
        ]
    return lines


def xml(answers: dict[str, Any], gpus: list[dict[str, Any]]) -> list[str]:
    """The elements of `-q -x` that programs read, arranged as the real program does."""
    lines = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">']
    lines += ["<nvidia_smi_log>", *element(1, "driver_version", answers["driver_version"])]
    lines += element(1, "attached_gpus", len(answers["gpus"]))
    for gpu in gpus:
        lines += [f'\t<gpu id="{gpu["pci.bus_id"]}">', *inside(gpu), "\t</gpu>"]
    return [*lines, "</nvidia_smi_log>"]


def inside(gpu: dict[str, Any]) -> list[str]:
    """One GPU's elements."""
    uncorrected = gpu.get("ecc.errors.uncorrected.volatile.total", 0)
    tree = {
        "product_name": gpu["name"],
        "product_architecture": gpu.get("architecture", "Hopper"),
        "persistence_mode": gpu.get("persistence_mode", "Enabled"),
        "mig_mode": {"current_mig": gpu.get("mig.mode.current", "N/A")},
        "uuid": gpu["uuid"],
        "gpu_reset_status": {"reset_required": gpu.get("reset_status.reset_required", "No")},
        "gpu_recovery_action": gpu.get("gpu_recovery_action", "None"),
        "pci": {"pci_bus_id": gpu["pci.bus_id"]},
        "fb_memory_usage": {name: f"{gpu[f'memory.{name}']} MiB" for name in ("total", "used", "free")},
        "compute_mode": gpu.get("compute_mode", "Default"),
        "ecc_mode": {"current_ecc": gpu.get("ecc.mode.current", "Enabled")},
        "ecc_errors": {"volatile": {"sram_uncorrectable_secded": 0, "dram_uncorrectable": uncorrected}},
        "remapped_rows": {
            "remapped_row_pending": gpu.get("remapped_rows.pending", "No"),
            "remapped_row_failure": gpu.get("remapped_rows.failure", "No"),
        },
        "fabric": {
            "state": gpu.get("fabric.state", "Completed"),
            "status": gpu.get("fabric.status", "Success"),
        },
    }
    return [line for tag, value in tree.items() for line in element(2, tag, value)]


def element(depth: int, tag: str, value: Any) -> list[str]:
    """An element with a text, or with others in it."""
    indent = "\t" * depth
    if not isinstance(value, dict):
        return [f"{indent}<{tag}>{value}</{tag}>"]
    parts = [line for name, part in value.items() for line in element(depth + 1, name, part)]
    return [f"{indent}<{tag}>", *parts, f"{indent}</{tag}>"]


def links(gpus: list[dict[str, Any]]) -> list[str]:
    """What `nvlink --status` prints: each link's speed, or that it is not active."""
    lines = []
    for gpu in gpus:
        lines.append(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})")
        for link in range(gpu.get("nvlink.count", 0)):
            down = link in gpu.get("nvlink.inactive", [])
            lines.append(f"\t Link {link}: {'<inactive>' if down else '26.562 GB/s'}")
    return lines


def summary(answers: dict[str, Any], gpus: list[dict[str, Any]]) -> list[str]:
    """What the program prints without arguments, in short."""
    driver, cuda = answers["driver_version"], answers["cuda_version"]
    lines = [f"| NVIDIA-SMI {driver}   Driver Version: {driver}   CUDA Version: {cuda} |", f"| {NOTICE} |"]
    for gpu in gpus:
        memory = f"{gpu.get('memory.used', 0)}MiB / {gpu.get('memory.total', 0)}MiB"
        lines.append(f"| {gpu['index']:>3}  {gpu['name']:<48} {memory:>20} |")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
