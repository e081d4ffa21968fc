"""Docker or Podman answers, and nothing of an ended run is left in it."""

from __future__ import annotations

from clusterkit.facts import TIMED_OUT
from clusterkit.probes import HOST, RUNS
from clusterkit.probes.container import CONTAINER, ContainerFacts, LeftOver
from clusterkit.steps.container.scope import TITLES, bare, client, runtime_on, silent
from clusterkit.steps.engine import (
    LAUNCH,
    PLAN,
    Change,
    Fleet,
    Recorded,
    Severity,
    State,
    Step,
    VersionAtLeast,
)

# Docker: the first whose `run` can be told never to pull. Podman: the oldest that a supported system has.
OLDEST = {"docker": "20.10", "podman": "3.4"}


class ContainerRuntime(Step):
    """The runtime of the inventory answers the login user, or sudo without a question."""

    name = "container runtime"
    tags = frozenset({LAUNCH, PLAN})
    probes = (CONTAINER, HOST)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Without an image there is nothing to run."""
        return bare(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """An answer; how it is called is only told."""
        oldest = OLDEST[fleet.members[host].container_runtime]
        return {"answers": True, "version": VersionAtLeast(oldest), "called": Recorded()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """What answered, to whom."""
        facts = fleet.facts[host]
        failure = facts.failure(CONTAINER)
        if failure and failure.status != TIMED_OUT:
            raise failure
        found = runtime_on(facts)
        version = found.version.partition("+")[0] if found else None
        return {"answers": found is not None, "version": version, "called": client(facts) or None}

    def severity(self, change: Change) -> Severity:
        """An old one that answers may do."""
        return "warning" if change.actual["answers"] else "failed"

    def explain(self, change: Change) -> str:
        title = TITLES[change.settings.container_runtime]
        if change.actual["answers"]:
            return f"{title} {change.actual['version']} is old: {change.desired['version']} is tested"
        found = change.facts.get(CONTAINER)
        if found is None:
            return f"{title} gave no answer within {CONTAINER.timeout} s"
        return {
            "missing": f"{change.settings.container_runtime} is not installed",
            "down": "the Docker daemon is down",
            "denied": f"{_user(change)} may not use Docker{_and_sudo(change, found)}",
        }.get(found.problem, f"{title} does not work: {found.said}")

    def hint(self, change: Change) -> str:
        kind, found = change.settings.container_runtime, change.facts.get(CONTAINER)
        if change.actual["answers"]:
            return f"install a newer {TITLES[kind]}"
        if found is None:
            return f"as root: systemctl restart {kind}; journalctl -u {kind} says what it was busy with"
        return {
            "missing": f"install {TITLES[kind]} there, or write another container_runtime in the inventory",
            "down": "as root: systemctl start docker; journalctl -u docker says why it ended",
            "denied": f"as root: usermod -aG docker {_user(change)}; or set ansible_become=true, with a sudo "
            "that asks for no password",
        }.get(found.problem, f"run `{kind} info` on {change.host}")


class LeftOverContainers(Step):
    """No container of a run that is over: it holds GPUs, ports and its name."""

    name = "left-over containers"
    tags = frozenset({LAUNCH})
    probes = (CONTAINER, RUNS)

    def skip(self, host: str, fleet: Fleet) -> str:
        """The runtime has to answer."""
        return silent(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """None."""
        return {"containers": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """Those whose run has no supervisor here."""
        live = {run.run_id for run in fleet.facts[host][RUNS].live}
        found = fleet.facts[host][CONTAINER]
        return {
            "containers": tuple(each.name for each in found.containers if each.run_id not in live)
            if found
            else ()
        }

    def severity(self, change: Change) -> Severity:
        """What has stopped only takes up room."""
        running = any(each.state.startswith(("Up", "Paused", "Restarting")) for each in _left(change))
        return "failed" if running else "warning"

    def explain(self, change: Change) -> str:
        first = _left(change)[0]
        more = len(_left(change)) - 1
        others = f", and {more} more" if more else ""
        return f"container {first.name} of run {first.run_id} is left ({first.state}){others}"

    def hint(self, change: Change) -> str:
        names = " ".join(each.name for each in _left(change))
        return f"if nobody needs them: {client(change.facts)} rm -f {names}"


def _left(change: Change) -> list[LeftOver]:
    names = change.actual["containers"]
    found = change.facts[CONTAINER]
    assert found is not None
    assert isinstance(names, tuple)
    return [each for each in found.containers if each.name in names]


def _user(change: Change) -> str:
    host = change.facts.get(HOST)
    return host.user if host else change.settings.user or "the login user"


def _and_sudo(change: Change, found: ContainerFacts) -> str:
    if not change.settings.become:
        return ""
    wants = "wants a password" if "password" in found.said else f"does not help: {found.said}"
    return f", and sudo {wants}"
