"""NVLink connections of each GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clusterkit.facts import NOT_FOUND, Output, Probe


@dataclass(frozen=True)
class NvLinks:
    """One GPU's links that are active, and the numbers of those that are not."""

    index: int
    active: int
    inactive: tuple[int, ...]


_SHELL = "exec nvidia-smi nvlink --status"

_GPU = re.compile(r"^GPU (\d+):")
_LINK = re.compile(r"^\s+Link (\d+): (.*)$")


def _parse(output: Output) -> tuple[NvLinks, ...]:
    """Every GPU that is listed; one whose links cannot be read has none."""
    found: dict[int, dict[int, bool]] = {}
    links: dict[int, bool] = {}
    for line in output.stdout.splitlines():
        gpu, link = _GPU.match(line), _LINK.match(line)
        if gpu:
            links = found.setdefault(int(gpu[1]), {})
        elif link:
            links[int(link[1])] = "inactive" not in link[2].lower()
    return tuple(
        NvLinks(index, sum(links.values()), tuple(link for link, active in links.items() if not active))
        for index, links in found.items()
    )


NVLINK = Probe("nvlink", _SHELL, _parse, timeout=20, accepts=(0, NOT_FOUND), about="nvidia-smi nvlink")
