"""A launch as people see it: what is waited for, each rank's lines, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clusterkit.report.diagnose import short_lines
from clusterkit.report.folding import fold
from clusterkit.report.status import last_lines
from clusterkit.report.terminal import Words, rank_colour, write_line
from clusterkit.runs.events import Event
from clusterkit.runs.selection import fold_ranks


class LaunchReport:
    """Shows events one by one; log lines go to stdout, everything else to stderr.

    `failed` is not shown: every node reports one, most of them because of another. What ends the job is said
    once, when node 0 has decided.
    """

    def __init__(self, words: Words, *, quiet: bool) -> None:
        self._words = words
        self._quiet = quiet
        self._hosts = 0
        self._joined: list[str] = []
        self._received = 0

    def show(self, event: Event) -> None:
        """Show one event."""
        handlers = {
            "planned": self._on_planned,
            "staged": self._on_staged,
            "joined": self._on_joined,
            "restarted": self._on_restarted,
            "line": self._on_line,
            "notice": self._on_notice,
            "progress": self._on_progress,
            "ended": self._on_ended,
        }
        handler = handlers.get(event.kind)
        if handler is not None:
            handler(event.data)

    def _on_planned(self, data: Mapping[str, Any]) -> None:
        nodes = data["nodes"]
        self._hosts = len(nodes)
        ranks = [rank for node in nodes for rank in node["ranks"]]
        hosts = fold(node["host"] for node in nodes)
        self._words.say(
            f"run {data['run_id']}: {len(ranks)} rank{'s'[: len(ranks) != 1]}{_servers(nodes)} "
            f"on {len(nodes)} node{'s'[: len(nodes) != 1]} ({hosts}), master {data['master']}",
            "bold",
        )

    def _on_staged(self, data: Mapping[str, Any]) -> None:
        self._received += int(data["received_bytes"])

    def _on_joined(self, data: Mapping[str, Any]) -> None:
        self._joined.append(data["host"])
        if len(self._joined) == self._hosts:
            self._words.say(f"all {self._hosts} nodes joined")

    def _on_restarted(self, data: Mapping[str, Any]) -> None:
        self._joined.clear()
        self._words.say(restart_line(data), "yellow")

    def _on_line(self, data: Mapping[str, Any]) -> None:
        if not self._quiet:
            with self._words.aside():
                show_line(data)

    def _on_notice(self, data: Mapping[str, Any]) -> None:
        self._words.say(str(data["text"]), "yellow")

    def _on_progress(self, data: Mapping[str, Any]) -> None:
        waiting = data.get("waiting")
        if waiting:
            self._words.progress(f"{data['doing']}: waiting for {fold(waiting)}")
        elif data["doing"] == "starting":
            self._joining(data.get("status", {}).get("nodes", []), data.get("absent") or {})
        elif data["doing"] == "running":
            self._words.clear()
        elif data["doing"] == "stopping":
            left = [
                node["host"] for node in data["status"]["nodes"] if node["state"] not in ("ended", "lost")
            ]
            if left:
                self._words.progress(f"stopping: waiting for {fold(left)}")

    def _joining(self, nodes: Sequence[Mapping[str, Any]], absent: Mapping[str, str]) -> None:
        """No rank starts before all launchers have met: the others wait for those that have not come."""
        missing = list(absent) or [node["host"] for node in nodes if node["host"] not in self._joined]
        why = next((f" (cannot reach the master {problem})" for problem in absent.values() if problem), "")
        if missing:
            self._words.progress(f"joining: waiting for {fold(missing)}{why}")

    def _on_ended(self, data: Mapping[str, Any]) -> None:
        self._words.clear()
        for line in last_lines(data):
            self._words.insist(line)
        if data.get("incomplete"):
            ranks = [entry["rank"] for entry in data["ranks"] if entry["host"] in data["incomplete"]]
            hosts = fold(data["incomplete"])
            whose = (
                f"log of rank {ranks[0]} is" if len(ranks) == 1 else f"logs of ranks {fold_ranks(ranks)} are"
            )
            self._words.insist(
                f"the {whose} incomplete: {hosts} did not answer at the end",
                "yellow",
            )
        self._words.say(f"logs: {data['logs']} (clusterkit logs --rank N)")
        if data["state"] in ("failed", "lost"):
            for line in short_lines(data.get("diagnosis"), data["run_id"]):
                self._words.insist(line, "yellow")
        self._words.insist(*ending(data))


def restart_line(data: Mapping[str, Any]) -> str:
    """What parts the lines of two attempts."""
    replaced = data.get("replaced", {})
    places = "".join(f", {spare} in the place of {host}" for host, spare in replaced.items())
    pause = f" in {data['wait_s']:g} s" if data.get("wait_s") else ""
    return f"attempt {data['attempt']} begins{pause}{places}, since {data['reason']}"


def _servers(nodes: Sequence[Mapping[str, Any]]) -> str:
    count = sum(len(node.get("servers", ())) for node in nodes)
    return f" and {count} server{'s'[: count != 1]}" if count else ""


def show_line(data: Mapping[str, Any]) -> None:
    """One log line with its rank and host in front."""
    number = data["rank"] if "rank" in data else data["server"]
    name = number if "rank" in data else f"server {number}"
    write_line(f"[{name} {data['host']}]", rank_colour(int(number)), data["bytes"])


def ending(status: Mapping[str, Any]) -> tuple[str, str]:
    """The last line of a launch and its colour: how the run ended, and on which host and rank."""
    state, run_id = status["state"], status["run_id"]
    if state == "succeeded":
        return f"run {run_id} succeeded", "green"
    return f"run {run_id} {state} (exit {status['exit_code']}): {status['reason']}", "red"
