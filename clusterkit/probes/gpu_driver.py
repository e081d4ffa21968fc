"""The NVIDIA driver as the kernel and the file system show it, without asking the driver itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clusterkit.facts import Output, Probe


@dataclass(frozen=True)
class DriverFacts:
    """Versions are "" where there is none.

    `loaded` is the kernel module that runs, `on_disk` the one that the next boot loads, `library` the
    libraries that programs use. `cards` are the PCI addresses of NVIDIA GPUs that are not given to a virtual
    machine, `denied` the device files that the login user may not use, `switches` how many NVSwitches there
    are. `fabric_manager` is its service's state ("active", "inactive", …).
    """

    loaded: str
    on_disk: str
    library: str
    cards: tuple[str, ...]
    nouveau: bool
    denied: tuple[str, ...]
    switches: int
    fabric_manager: str
    fabric_manager_version: str


# Classes 0300 and 0302 are GPUs, 0680 is a bridge: an NVSwitch. A login's PATH may lack /sbin.
_SHELL = r"""
PATH=$PATH:/usr/sbin:/sbin
if [ -e /proc/driver/nvidia/version ]; then grep '^NVRM version' /proc/driver/nvidia/version; fi
[ -d /sys/module/nouveau ] && echo nouveau=yes
switches=0; cards=
for device in /sys/bus/pci/devices/*; do
    { read -r vendor <"$device/vendor" && read -r class <"$device/class"; } 2>/dev/null || continue
    [ "$vendor" = 0x10de ] || continue
    case $class in
        0x0300* | 0x0302*)
            user=$(readlink "$device/driver" 2>/dev/null)
            cards=yes
            echo "card ${device##*/} ${user##*/}" ;;
        0x0680*) switches=$((switches + 1)) ;;
    esac
done
echo "switches=$switches"
if [ -n "$cards" ] || [ -e /proc/driver/nvidia/version ] || command -v nvidia-smi >/dev/null 2>&1; then
    echo "on_disk=$(modinfo -F version nvidia 2>/dev/null)"
    library=$(ldconfig -p 2>/dev/null | sed -n '/libnvidia-ml\.so\.1 .*=> /{ s/.*=> //p; q; }')
    [ -n "$library" ] && echo "library=$(readlink -f "$library")"
fi
for file in /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia[0-9]*; do
    if [ -e "$file" ] && ! { [ -r "$file" ] && [ -w "$file" ]; }; then echo "denied $file"; fi
done
if [ "$switches" != 0 ] || command -v nv-fabricmanager >/dev/null 2>&1; then
    echo "fabric_manager=$(systemctl is-active nvidia-fabricmanager 2>/dev/null)"
    echo "fabric_manager_version=$(nv-fabricmanager --version 2>/dev/null)"
fi
exit 0
"""

_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
_CARD = re.compile(r"^card (\S+) ?(\S*)$", re.MULTILINE)
_DENIED = re.compile(r"^denied (\S+)$", re.MULTILINE)


def _parse(output: Output) -> DriverFacts:
    found = output.pairs()
    loaded = re.search(r"^NVRM version: .*?  (\d+\.\d+(?:\.\d+)?)", output.stdout, re.MULTILINE)
    return DriverFacts(
        loaded=loaded[1] if loaded else "",
        on_disk=_version(found.get("on_disk", "")),
        library=_version(found.get("library", "").rpartition(".so.")[2]),
        cards=tuple(card for card, user in _CARD.findall(output.stdout) if not user.startswith("vfio")),
        nouveau="nouveau" in found,
        denied=tuple(_DENIED.findall(output.stdout)),
        switches=int(found["switches"]),
        fabric_manager=found.get("fabric_manager", ""),
        fabric_manager_version=_version(found.get("fabric_manager_version", "")),
    )


def _version(text: str) -> str:
    found = _VERSION.search(text)
    return found[0] if found else ""


GPU_DRIVER = Probe("gpu_driver", _SHELL, _parse, about="the NVIDIA driver's files")
