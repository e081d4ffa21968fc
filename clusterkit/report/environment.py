"""What a job gets and does not get of its hosts' environments, said once for all hosts that share it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clusterkit.planning.plan import NodePlan
from clusterkit.report.folding import fold


def lines(nodes: Sequence[NodePlan]) -> list[str]:
    """What was kept out with the reason, what the user's own variables are, and the network that is set."""
    return [*_removed(nodes), *_given(nodes), *_interfaces(nodes)]


def _removed(nodes: Sequence[NodePlan]) -> list[str]:
    """Names that share a reason and their hosts share a line."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        for name, why in node.environment.removed.items():
            hosts.setdefault((name, why), []).append(node.alias)
    names: dict[tuple[str, str], list[str]] = {}
    for (name, why), where in hosts.items():
        names.setdefault((why, fold(where)), []).append(name)
    return [
        f"kept {_listed(which)} of {where} out of the job: {why}" for (why, where), which in names.items()
    ]


def _given(nodes: Sequence[NodePlan]) -> list[str]:
    """The names of the user's variables, never a value."""
    hosts: dict[str, list[str]] = {}
    for node in nodes:
        environment = node.environment
        shown = [f"set {_listed(sorted(environment.private))}"] if environment.private else []
        if environment.secrets:
            shown.append(f"set {_listed(sorted(environment.secrets))} for the ranks only")
        for text in shown:
            hosts.setdefault(text, []).append(node.alias)
    return [text if len(where) == len(nodes) else f"{text} on {fold(where)}" for text, where in hosts.items()]


def _interfaces(nodes: Sequence[NodePlan]) -> list[str]:
    """The interfaces that NCCL and gloo are held to, where that is not the user's own doing."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        environment = node.environment
        ours = [
            name
            for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
            if name in environment.set and name not in environment.private
        ]
        if ours:
            hosts.setdefault((_listed(ours), node.node.interface), []).append(node.alias)
    return [f"set {names} to {interface} on {fold(where)}" for (names, interface), where in hosts.items()]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
