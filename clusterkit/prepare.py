"""The first half of a launch: read the hosts, check them, and make the plan. Writes nothing anywhere.

order → facts (one round trip a host) → topology → checks → environments → plan, and the code to send
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clusterkit import steps
from clusterkit.errors import ClusterkitError, FleetError, HostError, InputError, TopologyError
from clusterkit.facts import Facts, gather
from clusterkit.inventory.model import Settings
from clusterkit.planning import envfile, plan, topology
from clusterkit.planning.environment import Wishes, firewall, refuse_overrides
from clusterkit.planning.places import Home
from clusterkit.planning.plan import Plan, Request, Timeouts
from clusterkit.planning.topology import Topology
from clusterkit.probes import DISK, ENVIRONMENT, HOST, LAUNCH, PYTHON
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.runs.events import Event
from clusterkit.runs.record import new_run_id
from clusterkit.runs.watch import Tell
from clusterkit.steps import Verdict
from clusterkit.sync import Manifest, collect, sync_name, sync_root
from clusterkit.sync.roots import script_in


@dataclass(frozen=True)
class Order:
    """What the user asked for, before any host was asked. Sizes in bytes, limit of one answer in seconds."""

    inventory: Path
    members: tuple[Settings, ...]
    script: str
    arguments: tuple[str, ...]
    cwd: Path
    nproc_per_node: int | None = None
    devices: tuple[int, ...] | None = None
    env: tuple[str, ...] = ()
    env_file: Path | None = None
    keep_proxy: bool = False
    sync: bool = True
    sync_limit_bytes: int = 200_000_000
    check: bool = True
    timeout: float = 60.0
    template: Path | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    owner: str = ""


@dataclass(frozen=True)
class Prepared:
    """A plan that every check allows, and what it takes to carry it out. `secrets`: JSON texts by alias."""

    inventory: Path
    plan: Plan
    manifest: Manifest | None
    settings: Mapping[str, Settings]
    secrets: Mapping[str, str] = field(repr=False)
    clock_offsets: Mapping[str, float]
    versions: Mapping[str, str]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]


class ChecksFailed(ClusterkitError):
    """Checks tagged `launch` do not allow a start; nothing was changed on any host."""

    def __init__(self, verdicts: Sequence[Verdict]) -> None:
        self.verdicts = tuple(verdicts)
        pending = [verdict for verdict in self.verdicts if verdict.status == "pending"]
        failed = [verdict for verdict in self.verdicts if verdict.status != "pending"]
        said = [_counted(failed, "check", "failed")] if failed else []
        said += [_counted(pending, "change", "pending")] if pending else []
        todo = ["mend what is named above"] if failed else []
        todo += ["`clusterkit preflight` makes what is pending"] if pending else []
        super().__init__(
            f"{' and '.join(said)}, so nothing was started",
            f"{'; '.join(todo)}; or use --no-preflight if you know better",
        )

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """1 for a failure, 3 if only changes are pending."""
        return steps.exit_code(self.verdicts)


def _counted(verdicts: Sequence[Verdict], what: str, how: str) -> str:
    hosts = len({verdict.host for verdict in verdicts})
    return f"{len(verdicts)} {what}{'s'[: len(verdicts) != 1]} {how} on {hosts} host{'s'[: hosts != 1]}"


def prepare(
    order: Order, remotes: Mapping[str, Remote], *, forks: int, cancel: threading.Event, tell: Tell
) -> Prepared:
    """Read, check and plan. Raises FleetError, ChecksFailed, InputError, Interrupted."""
    _refuse_containers(order)
    run_id = new_run_id(time.time())
    wishes = _wishes(order)
    root = sync_root(Path(order.script), order.cwd, sent=order.sync)
    facts = _facts(order, remotes, forks, cancel, tell, run_id)
    assigned, verdicts = _checked(order, run_id, facts)
    manifest = _manifest(order, root) if order.sync else None
    made, secrets = _plan(order, run_id, assigned.topology, facts, wishes, root)
    return Prepared(
        inventory=order.inventory,
        plan=made,
        manifest=manifest,
        settings={each.alias: each for each in order.members},
        secrets=secrets,
        clock_offsets={alias: each.clock.offset_s for alias, each in facts.items() if each.clock},
        versions=_versions(facts),
        verdicts=verdicts,
        notes=(*assigned.notes, *(manifest.warnings if manifest else ())),
    )


def _refuse_containers(order: Order) -> None:
    """Raise InputError for hosts with an image: a job must not run beside it unnoticed."""
    inside = [each.alias for each in order.members if each.container_runtime != "none"]
    if inside:
        raise InputError(
            f"{', '.join(inside[:5])}: `image` is set, and launch does not train in containers yet",
            "write container_runtime=none to train with the interpreter that `python` names on the host",
        )


def _checked(
    order: Order, run_id: str, facts: Mapping[str, Facts]
) -> tuple[topology.Arrangement, tuple[Verdict, ...]]:
    """The topology, and what the checks say. Raises ChecksFailed, which names every host at once."""
    arranged, problem = None, None
    try:
        arranged = topology.arrange(
            order.members, facts, run_id, nproc_per_node=order.nproc_per_node, devices=order.devices
        )
    except (TopologyError, HostError) as error:
        problem = error
    made = arranged.topology if arranged else None
    verdicts = steps.check(order.members, facts, made) if order.check else []
    if steps.exit_code(verdicts):
        raise ChecksFailed([verdict for verdict in verdicts if steps.exit_code([verdict])])
    if problem is not None:
        raise problem
    assert arranged is not None
    return arranged, tuple(verdicts)


def _wishes(order: Order) -> Wishes:
    """The user's variables, read before any host is asked, so that a typing error costs nothing."""
    wishes = Wishes(
        given=envfile.parse_assignments(order.env),
        secrets=envfile.read(order.env_file) if order.env_file else {},
        keep_proxy=order.keep_proxy,
    )
    for settings in order.members:
        refuse_overrides(settings.alias, settings.env, wishes)
    return wishes


def _facts(
    order: Order, remotes: Mapping[str, Remote], forks: int, cancel: threading.Event, tell: Tell, run_id: str
) -> dict[str, Facts]:
    waiting = [each.alias for each in order.members]
    # What a plan is made of, and what the checks read.
    read_by_checks = steps.probes(steps.chosen(steps.LAUNCH))
    asked = tuple({probe.name: probe for probe in (*LAUNCH, *read_by_checks)}.values())

    def done(alias: str) -> None:
        waiting.remove(alias)
        tell(Event("progress", run_id, {"doing": "reading the hosts", "waiting": list(waiting)}))

    def one(settings: Settings) -> Facts:
        return gather(remotes[settings.alias], settings, asked, timeout=order.timeout)

    tell(Event("progress", run_id, {"doing": "reading the hosts", "waiting": list(waiting)}))
    jobs = {each.alias: each for each in order.members}
    outcome = fan_out(jobs, one, forks=forks, cancel=cancel, on_done=done)
    if outcome.bad:
        raise FleetError(outcome.bad, "reading the hosts, so nothing was started")
    return outcome.good


def _manifest(order: Order, root: Path) -> Manifest:
    without = [order.env_file] if order.env_file else []
    needed = script_in(Path(order.script), order.cwd, root)
    return collect(root, limit=order.sync_limit_bytes, needed=needed, without=without)


def _plan(
    order: Order, run_id: str, made: Topology, facts: Mapping[str, Facts], wishes: Wishes, root: Path
) -> tuple[Plan, dict[str, str]]:
    settings = {each.alias: each for each in order.members}
    environments = {
        node.alias: firewall(
            made,
            node,
            run_id=run_id,
            login=facts[node.alias][ENVIRONMENT].variables,
            declared=settings[node.alias].env,
            wishes=wishes,
        )
        for node in made.nodes
    }
    request = Request(
        script=script_in(Path(order.script), order.cwd, root),
        arguments=order.arguments,
        root=root,
        code=sync_name(root) if order.sync else None,
        timeouts=order.timeouts,
        template=order.template,
        owner=order.owner,
    )
    result = plan.make(run_id, made, order.members, environments, _versions(facts), _homes(facts), request)
    return result, {alias: each.secrets_json for alias, each in environments.items()}


def _homes(facts: Mapping[str, Facts]) -> dict[str, Home]:
    homes = {}
    for alias, each in facts.items():
        disk = each.get(DISK)
        homes[alias] = Home(each[HOST].home, each[HOST].uid, bool(disk and disk.network))
    return homes


def _versions(facts: Mapping[str, Facts]) -> dict[str, str]:
    """Each host's Paddle version; "" where none was found (the checks say so, the plan refuses it)."""
    found = {alias: each.get(PYTHON) for alias, each in facts.items()}
    return {alias: each.paddle.version if each and each.paddle else "" for alias, each in found.items()}
