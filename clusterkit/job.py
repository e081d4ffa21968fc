"""A staged run on all its nodes: gate, start together, follow, gather. Once started, it needs nobody here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clusterkit.errors import ClusterkitError, FleetError, Held, HostError, HostTimeout, Interrupted
from clusterkit.interrupts import Interrupts
from clusterkit.remote.protocol import Remote
from clusterkit.runs.events import Event
from clusterkit.runs.follow import Following, deadline
from clusterkit.runs.gathered import GatheredLogs
from clusterkit.runs.record import NodeRecord, RunRecord, RunStore
from clusterkit.runs.watch import LAUNCHER, Tell, Watch
from clusterkit.staging import Manner

# How long the nodes may take to find each other before anything starts; the supervisors' own gate is as long.
GATE_S = 30.0
# From the open gate until every launcher runs. Node 0's own limits end the run before this one passes.
START_S = 90.0
# Beyond the job's own grace: killing what is left, proving it, and telling us.
STOP_MARGIN_S = 35.0
# A host that cannot be reached when everything else is over gets this long to answer once more.
LAST_LOOK_S = 10.0
KEEP_S = 5.0
_POLL_S = 0.2


class NeverStarted(Exception):
    """The gate did not open: no node has started anything."""

    def __init__(self, error: ClusterkitError) -> None:
        super().__init__(error.message)
        self.error = error


class Job:
    """A staged run, from its gate to its end."""

    def __init__(
        self,
        record: RunRecord,
        remotes: Mapping[str, Remote],
        store: RunStore,
        interrupts: Interrupts,
        manner: Manner,
        tell: Tell,
    ) -> None:
        self.record = record
        self.remotes = remotes
        self.store = store
        self.interrupts = interrupts
        self.manner = manner
        self.tell = tell
        self.first = record.nodes[0].host
        self.stops_sent = 0
        self.stop_limit = float("inf")
        self.kept_at = 0.0
        self.stop_told = False
        self.saved: dict[str, Any] = {}
        self.unkept = False

    def run(self) -> dict[str, Any]:
        """Open the gate, follow the job, gather its logs; the final status document."""
        files = {node.host: _files(node) for node in self.record.nodes}
        with (
            GatheredLogs(self._log_path) as logs,
            Following(self.record.nodes, self.remotes, files, start=True) as following,
        ):
            self.following = following
            self.watch = Watch(self.record, logs, self.tell)
            self._gate()
            self._await_start()
            if self.manner.detach or self.interrupts.hangup:
                return self._detach()
            self._follow()
            if self.interrupts.hangup:
                return self._detach()
            self.watch.close()
        return self._finish()

    def _log_path(self, file: str) -> Any:
        if file.isdecimal():
            return self.store.log(self.record.run_id, int(file))
        return self.store.launcher_log(self.record.run_id, file.removeprefix(f"{LAUNCHER}-"))

    def _gate(self) -> None:
        """Wait until every supervisor has reached node 0, then tell node 0 to start everybody."""
        try:
            self._await_everybody()
            self._save(self.watch.status())
            self.following.command(self.first, {"command": "go"}, keep=True)
        except (ClusterkitError, Interrupted) as error:
            self.following.command_all({"command": "stop", "grace": 0, "cause": {"kind": "gate"}})
            raise NeverStarted(error) from None

    def _everybody_joined(self) -> bool:
        failures = {}
        for node in self.record.nodes:
            seen = self.watch.observed[node.host]
            if not seen.reachable:
                failures[node.host] = HostError(node.host, f"its supervisor does not answer: {seen.error}")
            failure = self.watch.state(node.host).get("failure")
            if failure and failure["kind"] != "channel":
                failures[node.host] = _cannot_go_on(node.host, failure)
        if failures:
            raise FleetError(failures, "starting the supervisors, so no training was started")
        if self.watch.state(self.first).get("decision", {}).get("phase") in ("prepare", "start"):
            return True
        peers = self.watch.state(self.first).get("peers")
        return peers is not None and all(peer["joined"] for peer in peers)

    def _started(self) -> bool:
        if self.watch.decision["phase"] in ("stop", "done"):
            return True
        return all(self.watch.state(node.host).get("started_at") for node in self.record.nodes)

    def _await_everybody(self) -> None:
        """Every node has reached node 0. Raises FleetError naming who has not, Interrupted."""
        end = deadline(GATE_S)
        while not self._everybody_joined():
            if time.monotonic() > end:
                raise self._not_joined()
            self.interrupts.check()
            self._step()
            self._tell_waiting()

    def _await_start(self) -> None:
        """Every node has started, or the run is over, or the limit has passed: `_follow` takes over then."""
        end = deadline(START_S)
        while not self._started() and time.monotonic() < min(end, self.stop_limit):
            self._step()
            self._heed_interrupts()
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        progress = {"doing": "starting", "waiting": self._missing()}
        self.tell(Event("progress", self.record.run_id, progress))

    def _missing(self) -> list[str]:
        peers = {peer["alias"]: peer for peer in self.watch.state(self.first).get("peers") or []}
        return [
            node.host
            for node in self.record.nodes
            if not self.watch.state(node.host) or (node.host in peers and not peers[node.host]["joined"])
        ]

    def _not_joined(self) -> ClusterkitError:
        failures = {host: self._why_not_joined(host) for host in self._missing()}
        if not failures:
            return ClusterkitError(f"node 0 ({self.first}) did not open the gate within {GATE_S:g} s")
        return FleetError(failures, "starting the nodes, so no training was started")

    def _why_not_joined(self, host: str) -> HostError:
        failure = self.watch.state(host).get("failure")
        if not failure:
            words = f"{host}: its supervisor gave no sign for {GATE_S:g} s"
            return HostTimeout(host, words, "is the machine overloaded, or its disk full? Then try again")
        address, _, why = str(failure["detail"]).partition(": ")
        words = f"{host}: could not reach node 0 ({self.first}) at {address} for {GATE_S:g} s: {why}"
        hint = "open this port between the nodes: `clusterkit preflight`, or whoever runs the firewall"
        return HostTimeout(host, words, hint)

    def _step(self) -> bool:
        """Take one frame or wait a moment; True if a node's state may have changed."""
        if time.monotonic() - self.kept_at > KEEP_S:
            self.kept_at = time.monotonic()
            self.following.command(self.first, {"command": "keep"})
        frame = self.following.next(_POLL_S)
        if frame is None:
            return False
        self.watch.take(frame)
        if frame.kind == "log":
            return False
        self._say_why_it_stops()
        return True

    def _say_why_it_stops(self) -> None:
        """Say once what ends the job, as node 0 has decided it; a user's own signal was answered already."""
        decided = self.watch.decision
        cause = decided.get("cause")
        if self.stop_told or decided["phase"] not in ("stop", "done") or not cause or cause["kind"] == "user":
            return
        self.stop_told = True
        text = f"stopping all nodes: {self.watch.status()['reason']}"
        self.tell(Event("notice", self.record.run_id, {"text": text}))

    def _follow(self) -> None:
        """Take frames until the job is over and every byte of its logs is here."""
        last_look = float("inf")
        while not self.watch.settled() or self._still_hoping(last_look):
            changed = self._step()
            self._heed_interrupts()
            if self.interrupts.hangup:
                return
            if changed:
                status = self.watch.status()
                self._save(status)
                self.tell(Event("progress", self.record.run_id, self._progress(status)))
            if last_look == float("inf") and self.watch.decision["phase"] == "done":
                last_look = deadline(LAST_LOOK_S)
            if time.monotonic() > self.stop_limit:
                raise Interrupted(self.interrupts.signum, self._unfinished())

    def _progress(self, status: dict[str, Any]) -> dict[str, Any]:
        """What is going on: the job, and after its end the rest of its logs."""
        if self.watch.decision["phase"] != "done":
            return {"doing": status["state"], "status": status, "absent": self._absent()}
        waiting = [node.host for node in self.record.nodes if node.host not in self.watch.finished]
        return {"doing": "gathering the logs", "waiting": waiting}

    def _absent(self) -> dict[str, str]:
        """The nodes whose launcher has not come to Paddle's meeting point, and why if their host knows."""
        peers = self.watch.state(self.first).get("peers") or []
        return {
            peer["alias"]: (peer.get("state") or {}).get("master_problem") or ""
            for peer in peers
            if peer.get("registered") is False
        }

    def _still_hoping(self, last_look: float) -> bool:
        """True while a host that only we cannot see may still hand over the rest of its logs."""
        if time.monotonic() > last_look:
            return False
        nodes = {node["host"]: node["state"] for node in self.watch.status()["nodes"]}
        return any(nodes[host] != "lost" and not self.watch.observed[host].reachable for host in nodes)

    def _unfinished(self) -> list[str]:
        return [host for host in self.watch.observed if self.watch.state(host).get("state") != "ended"]

    def _heed_interrupts(self) -> None:
        """The first signal stops the job with its grace, a second one without."""
        if self.interrupts.count <= self.stops_sent or self.stops_sent >= 2:
            return
        self.stops_sent = min(2, self.interrupts.count)
        grace = self.record.grace if self.stops_sent == 1 else 0.0
        cause = {"kind": "user", "signal": self.interrupts.signum}
        self.following.command_all({"command": "stop", "grace": grace, "cause": cause}, keep=True)
        self.stop_limit = deadline(grace + STOP_MARGIN_S)
        text = f"stopping all nodes (up to {grace:.0f} s; press Ctrl-C again to skip the wait)"
        if self.stops_sent == 2:
            text = f"stopping now; not finished: {', '.join(self._unfinished())}"
        self.tell(Event("notice", self.record.run_id, {"text": text}))

    def _save(self, status: dict[str, Any]) -> None:
        """Write the record when something but log sizes has changed."""
        essence = {key: value for key, value in status.items() if key != "ranks"}
        if essence != self.saved:
            self.saved = essence
            self._keep(status)

    def _keep(self, status: dict[str, Any]) -> None:
        """Write the record; a full disk here is no reason to end a job elsewhere, and is told once."""
        try:
            self.store.save(replace(self.record, status=status))
        except ClusterkitError as error:
            if not self.unkept:
                self.tell(Event("notice", self.record.run_id, {"text": f"{error.message}; the job goes on"}))
            self.unkept = True

    def _detach(self) -> dict[str, Any]:
        status = self.watch.status()
        self._keep(status)
        words = (
            "its logs stay on the hosts until `clusterkit logs` asks for them, and `clusterkit stop` ends it"
        )
        self.tell(Event("notice", self.record.run_id, {"text": f"detached: the job goes on; {words}"}))
        return status

    def _finish(self) -> dict[str, Any]:
        status = self.watch.status()
        status["logs"] = str(self.store.folder(self.record.run_id) / "logs")
        status["incomplete"] = [host for host in self.watch.observed if host not in self.watch.finished]
        self._keep(status)
        self.tell(Event("ended", self.record.run_id, status))
        return status


def _cannot_go_on(host: str, failure: Mapping[str, Any]) -> HostError:
    if failure["kind"] == "held":
        return Held(host, str(failure["detail"]), "wait for it (--lock-wait SECONDS), or stop that run")
    return HostError(host, f"its supervisor cannot go on: {failure['detail']}")


def _files(node: NodeRecord) -> dict[str, Any]:
    return {**{str(rank): {"offset": 0} for rank in node.ranks}, LAUNCHER: {"offset": 0}}
