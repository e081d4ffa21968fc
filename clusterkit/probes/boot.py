"""Since when the host runs, and whether it waits for a reboot."""

from __future__ import annotations

from dataclasses import dataclass

from clusterkit.facts import Output, Probe


@dataclass(frozen=True)
class BootFacts:
    """`uptime_s` in seconds. `wanted_by` are packages that ask for a reboot, "" for one that was not named.

    `modules` says whether the running kernel's modules are still on disk: without them none can be loaded.
    """

    uptime_s: int
    wanted_by: tuple[str, ...]
    modules: bool


_SHELL = r"""
if { read -r seconds rest </proc/uptime; } 2>/dev/null; then echo "uptime=${seconds%%.*}"; fi
if [ -e /run/reboot-required ]; then
    echo wanted
    sed 's/^/wanted /' /run/reboot-required.pkgs 2>/dev/null
fi
release=${machine#* }; release=${release% *}
for folder in "/lib/modules/$release" "/usr/lib/modules/$release"; do
    [ -d "$folder" ] && echo modules=yes
done
for other in /lib/modules/*; do
    if [ -e "$other" ]; then echo others=yes; break; fi
done
exit 0
"""


def _parse(output: Output) -> BootFacts:
    found = output.pairs()
    lines = output.stdout.splitlines()
    packages = dict.fromkeys(line[len("wanted ") :] for line in lines if line.startswith("wanted "))
    return BootFacts(
        uptime_s=int(found["uptime"]),
        wanted_by=tuple(packages) or (("",) if "wanted" in lines else ()),
        # A host without any module (a container, a kernel without modules) has lost none.
        modules="modules" in found or "others" not in found,
    )


BOOT = Probe("boot", _SHELL, _parse, about="uptime and pending reboot")
