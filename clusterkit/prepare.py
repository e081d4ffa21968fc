"""The first half of a launch: read the hosts, check them, and make the plan. Writes nothing anywhere.

order → facts (one round trip a host) → topology → checks → environments → plan, and the code to send
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from clusterkit import steps
from clusterkit.errors import ClusterkitError, FleetError, HostError, TopologyError
from clusterkit.facts import Facts, gather
from clusterkit.inventory.model import Settings
from clusterkit.planning import containers, envfile, places, plan, topology
from clusterkit.planning.attempts import Attempts, checkpoint_dir
from clusterkit.planning.containers import Ground
from clusterkit.planning.devices import paddle_on
from clusterkit.planning.environment import Environment, Wishes, firewall, refuse_overrides
from clusterkit.planning.places import Home
from clusterkit.planning.plan import Plan, Request, Timeouts
from clusterkit.planning.roles import Role
from clusterkit.planning.topology import Node, Topology
from clusterkit.probes import DISK, ENVIRONMENT, HOST, LAUNCH
from clusterkit.probes.server_core import SERVER_CORE
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.runs.events import Event
from clusterkit.runs.record import new_run_id
from clusterkit.runs.watch import Tell
from clusterkit.steps import Verdict
from clusterkit.sync import Manifest, collect, sync_name, sync_root
from clusterkit.sync.roots import script_in
from clusterkit.tables import Tables


@dataclass(frozen=True)
class Order:
    """What the user asked for, before any host was asked. Sizes in bytes, limit of one answer in seconds.

    `tables` are those with the site's own entries, None for those that are shipped.
    """

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
    roles: Mapping[str, Role] | None = None
    attempts: Attempts = field(default_factory=Attempts)
    checkpoint_dir: str = ""
    owner: str = ""
    tables: Tables | None = None


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

    def __init__(self, verdicts: Sequence[Verdict], *, avoidable: bool = True) -> None:
        self.verdicts = tuple(verdicts)
        pending = [verdict for verdict in self.verdicts if verdict.status == "pending"]
        failed = [verdict for verdict in self.verdicts if verdict.status != "pending"]
        said = [_counted(failed, "check", "failed")] if failed else []
        said += [_counted(pending, "change", "pending")] if pending else []
        todo = ["mend what is named above"] if failed else []
        todo += ["`clusterkit preflight` makes what is pending"] if pending else []
        super().__init__(
            f"{' and '.join(said)}, so nothing was started",
            "; ".join(todo) + ("; or use --no-preflight if you know better" if avoidable else ""),
        )

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """1 for a failure, 3 if only changes are pending."""
        return steps.exit_code(self.verdicts)


def _counted(verdicts: Sequence[Verdict], what: str, how: str) -> str:
    hosts = len({verdict.host for verdict in verdicts})
    return f"{len(verdicts)} {what}{'s'[: len(verdicts) != 1]} {how} on {hosts} host{'s'[: hosts != 1]}"


def prepare(
    order: Order,
    remotes: Mapping[str, Remote],
    *,
    forks: int,
    cancel: threading.Event,
    tell: Tell,
    run_id: str = "",
) -> Prepared:
    """Read, check and plan. Raises FleetError, ChecksFailed, InputError, Interrupted.

    With `run_id` it is a further attempt of that run.
    """
    run_id = run_id or new_run_id(time.time())
    wishes = _wishes(order)
    root = sync_root(Path(order.script), order.cwd, sent=order.sync)
    facts = _facts(order, remotes, forks, cancel, tell, run_id)
    assigned, verdicts = _checked(order, run_id, facts)
    _refuse_without_servers(order, facts)
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


# A template of one's own may start another launcher, which need not have PaddlePaddle.
_PADDLE_CHECKS = ("paddle", "same paddle", "libgomp", "image paddle")


def _refuse_without_servers(order: Order, facts: Mapping[str, Facts]) -> None:
    """Raise FleetError for hosts whose Paddle, their own or their image's, has no parameter servers."""
    if not order.roles:
        return
    hint = "use a PaddlePaddle 2.4 to 2.6, whose wheels have them, or build yours with WITH_PSCORE=ON"
    bad: dict[str, HostError] = {}
    for settings in order.members:
        paddle = paddle_on(facts[settings.alias])
        if facts[settings.alias].get(SERVER_CORE) is False:
            version = paddle.version if paddle else ""
            words = f"{settings.alias}: PaddlePaddle {version} was built without its parameter servers"
            bad[settings.alias] = HostError(settings.alias, words, hint)
    if bad:
        raise FleetError(bad, "--run-mode ps, so nothing was started")


def _checked(
    order: Order, run_id: str, facts: Mapping[str, Facts]
) -> tuple[topology.Arrangement, tuple[Verdict, ...]]:
    """The topology, and what the checks say. Raises ChecksFailed, which names every host at once."""
    arranged, problem = None, None
    try:
        arranged = topology.arrange(
            order.members,
            facts,
            # Other ports for another attempt: who is cut off may still try those of the last one.
            f"{run_id}/{order.attempts.first}" if order.attempts.first else run_id,
            nproc_per_node=order.nproc_per_node,
            devices=order.devices,
            roles=order.roles,
        )
    except (TopologyError, HostError) as error:
        problem = error
    made = arranged.topology if arranged else None
    tag = steps.LAUNCH if order.check else steps.PLAN
    verdicts = steps.check(order.members, facts, made, tag, order.tables)
    if order.template is not None and order.template.is_file():
        verdicts = [verdict for verdict in verdicts if verdict.name not in _PADDLE_CHECKS]
    if steps.exit_code(verdicts):
        wrong = [verdict for verdict in verdicts if steps.exit_code([verdict])]
        raise ChecksFailed(wrong, avoidable=order.check)
    if problem is not None:
        raise problem
    assert arranged is not None
    return arranged, tuple(verdicts) if order.check else ()


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
    servers = (SERVER_CORE,) if order.roles else ()
    asked = tuple({probe.name: probe for probe in (*LAUNCH, *read_by_checks, *servers)}.values())

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
    found = {alias: containers.ground(each, facts[alias]) for alias, each in settings.items()}
    grounds = {alias: ground for alias, ground in found.items() if ground is not None}
    homes = _homes(facts)
    code = sync_name(root) if order.sync else None
    workdirs = {
        alias: places.workdir(each.remote_dir, alias, code, root.as_posix(), homes[alias].path)
        for alias, each in settings.items()
    }
    environments = {
        node.alias: _environment(
            made,
            node,
            run_id,
            facts[node.alias],
            grounds.get(node.alias),
            settings[node.alias],
            wishes,
            checkpoint_dir(order.checkpoint_dir, workdirs[node.alias], homes[node.alias].path),
        )
        for node in made.nodes
    }
    request = Request(
        script=script_in(Path(order.script), order.cwd, root),
        arguments=order.arguments,
        root=root,
        code=code,
        timeouts=order.timeouts,
        template=order.template,
        attempts=order.attempts,
        owner=order.owner,
    )
    versions = _versions(facts)
    result = plan.make(run_id, made, order.members, environments, versions, homes, request, grounds)
    return result, {alias: each.secrets_json for alias, each in environments.items()}


def _environment(
    made: Topology,
    node: Node,
    run_id: str,
    facts: Facts,
    ground: Ground | None,
    settings: Settings,
    wishes: Wishes,
    checkpoints: str,
) -> Environment:
    """A bare host's login shell has variables, a container's image has; nothing of the first gets into it."""
    login = containers.traps(ground) if ground else facts[ENVIRONMENT].variables
    made_for = firewall(
        made,
        node,
        run_id=run_id,
        login=login,
        declared=settings.env,
        wishes=wishes,
        checkpoint_dir=checkpoints,
    )
    return replace(made_for, keep=()) if ground else made_for


def _homes(facts: Mapping[str, Facts]) -> dict[str, Home]:
    homes = {}
    for alias, each in facts.items():
        disk = each.get(DISK)
        homes[alias] = Home(each[HOST].home, each[HOST].uid, bool(disk and disk.network))
    return homes


def _versions(facts: Mapping[str, Facts]) -> dict[str, str]:
    """Each host's Paddle version; "" where none was found (the checks say so, the plan refuses it)."""
    found = {alias: paddle_on(each) for alias, each in facts.items()}
    return {alias: paddle.version if paddle else "" for alias, paddle in found.items()}
