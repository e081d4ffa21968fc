"""What `clusterkit launch` does once its command line is understood."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clusterkit import inventory as inventories
from clusterkit import tables
from clusterkit.cli.session import Access, Members, remotes_of
from clusterkit.diagnose import in_short
from clusterkit.diagnosis.remains import has_failed
from clusterkit.diagnosis.rules import Rule
from clusterkit.errors import ClusterkitError, FleetError, InputError
from clusterkit.interrupts import Interrupts
from clusterkit.inventory.model import Settings
from clusterkit.launch import Manner, launch
from clusterkit.lockwait import Patience
from clusterkit.observe import recorded
from clusterkit.on_end import tell_end
from clusterkit.planning import templating
from clusterkit.planning.attempts import ON_HANG
from clusterkit.planning.plan import TEMPLATE
from clusterkit.planning.roles import SERVERS, TRAINERS, Role, Wanted, share_out
from clusterkit.prepare import ChecksFailed, Order, Prepared, prepare
from clusterkit.remote import Remote
from clusterkit.replacing import Reserve
from clusterkit.report import checks, environment
from clusterkit.report.launch import LaunchReport
from clusterkit.report.streaming import write_event
from clusterkit.report.terminal import ReaderGone, Words, forget_reader
from clusterkit.runs.events import Event
from clusterkit.runs.record import ENDED, RunStore, state_directory
from clusterkit.steps import Verdict


def refuse_confusion(
    inventory: str, script: str, run_mode: str, servers: int | None, trainers: int | None
) -> None:
    """Raise InputError where the words are certainly in the wrong place."""
    if inventory.endswith((".py", ".sh")):
        raise InputError(
            f"{inventory} looks like a script, and it stands where the inventory belongs",
            f"write: clusterkit launch inventory.ini {inventory}",
        )
    if run_mode not in ("collective", "ps"):
        raise InputError(f"--run-mode {run_mode}: there is no such mode", "write `collective` or `ps`")
    if run_mode != "ps" and (servers or trainers):
        option = "--servers" if servers else "--trainers"
        raise InputError(f"{option} is for parameter-server mode", "add --run-mode ps")


def roles(
    chosen: Members, servers: int | None, trainers: int | None, nproc_per_node: int | None
) -> dict[str, Role]:
    """What each host does in parameter-server mode; one that does nothing is not in it. Raises InputError."""

    def group(name: str) -> set[str] | None:
        if name not in chosen.inventory.groups:
            return None
        return {host.name for host in inventories.select(chosen.inventory, name)}

    counts = {each.alias: nproc_per_node or each.nproc_per_node or 1 for each in chosen.settings}
    wanted = Wanted(servers, trainers, group(SERVERS), group(TRAINERS), counts)
    return share_out([each.alias for each in chosen.settings], wanted)


def misplaced(ours: Collection[str], arguments: Sequence[str], script: str) -> str:
    """A sentence for options of ours that stand after SCRIPT and so belong to it; "" without any."""
    found = [word for word in arguments if word.startswith("--") and word.split("=")[0] in ours]
    return f"note: {', '.join(found)} stands after {script} and is passed on to it" if found else ""


def on_hang(wanted: str, hang_timeout: float) -> str:
    """`--on-hang` as it was given. Raises InputError."""
    if wanted not in ON_HANG:
        raise InputError(f"--on-hang {wanted}: no such thing", f"it is one of {', '.join(ON_HANG)}")
    if wanted != "report" and not hang_timeout:
        raise InputError(f"--on-hang {wanted} without --hang-timeout", "add --hang-timeout SECONDS")
    return wanted


def device_list(devices: str | None) -> tuple[int, ...] | None:
    """`--devices` as numbers; None for `all` or nothing. Raises InputError."""
    if devices is None or devices == "all":
        return None
    parts = devices.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise InputError(f"--devices {devices}: not a list of device numbers", "write `all`, or `0,1,2,3`")
    return tuple(int(part) for part in parts)


def template_file(given: str | None, inventory: Path) -> Path | None:
    """The file that `--template` names, ours by its short name too; else the folder beside the inventory.

    None where neither is there, and our own template is meant. Raises InputError for a name of nothing.
    """
    if given is None:
        beside = inventory.resolve().parent / "templates"
        return beside if (beside / TEMPLATE).is_file() and beside != templating.folder() else None
    ours = {path.name.partition(".")[0]: path for path in templating.folder().glob("*.j2")}
    found = Path(given) if Path(given).is_file() else ours.get(given)
    if found is None:
        raise InputError(
            f"--template {given}: there is no such file",
            f"give the path of a template, or one of ours: {', '.join(sorted(ours))}",
        )
    return found


def owner() -> str:
    """Who launches, as other users of the hosts are told: `ann@laptop`."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


class Starter:
    """One order with the way to show what becomes of it."""

    def __init__(
        self,
        order: Order,
        access: Access,
        words: Words,
        *,
        as_json: bool,
        quiet: bool,
        spares: tuple[Settings, ...] = (),
        lock_wait: float = 0.0,
        on_end: str | None = None,
        rules: tuple[Rule, ...] = (),
    ) -> None:
        self._order = order
        self._rules = rules
        self._spares = spares
        self._patience = Patience(lock_wait, self._tell)
        self._access = access
        self._words = words
        self._json = as_json
        self._report = LaunchReport(words, quiet=quiet)
        self._on_end = on_end
        self._run_id = ""

    def dry_run(self, output: Path | None, show_env: bool, forks: int) -> int:
        """Show the plan, and write its files into `output`."""
        with (
            Interrupts() as interrupts,
            remotes_of(self._order.members, self._access, self._words) as remotes,
        ):
            prepared = self._prepare(remotes, interrupts, forks)
        plan = prepared.plan
        if self._json:
            print(json.dumps(plan.as_json(show_env=show_env), indent=1))
        else:
            print(plan.as_text(show_env=show_env), end="")
        if output is not None:
            for path in plan.write(output):
                self._words.say(f"wrote {path}")
        return 0

    def launch(self, manner: Manner) -> int:
        """Start the job and stay with it; the job's exit code."""
        if self._on_end and manner.detach:
            raise InputError(
                "--on-end and --detach do not go together: nobody is here when the run ends",
                "leave --detach out, or wait for the run: `clusterkit status --watch; YOUR COMMAND`",
            )
        store = RunStore(state_directory(os.environ))
        status: dict[str, Any] | None = None
        everybody = (*self._order.members, *self._spares)
        with Interrupts() as interrupts:
            try:
                with remotes_of(everybody, self._access, self._words) as remotes:
                    status = self._launch(remotes, store, interrupts, manner)
            finally:
                self._tell_end(store, status, interrupts)
        return int(status["exit_code"] or 0)

    def _tell_end(self, store: RunStore, status: dict[str, Any] | None, interrupts: Interrupts) -> None:
        """Run the command of --on-end, if there has been a run; how that goes changes no exit code."""
        if not self._on_end or not self._run_id:
            return
        record = store.load(self._run_id)
        if status is not None:
            # More than the record where the disk here is full.
            record = replace(record, status=status)
        if record.state in ENDED:
            problem = tell_end(self._on_end, recorded(record, store), interrupts)
        else:
            problem = f"--on-end was not run: run {record.run_id} is {record.state}, and not watched any more"
        if problem:
            self._words.insist(problem, "yellow")

    def _launch(
        self, remotes: Mapping[str, Remote], store: RunStore, interrupts: Interrupts, manner: Manner
    ) -> dict[str, Any]:
        while True:
            prepared = self._prepare(remotes, interrupts, manner.forks)
            reserve = self._reserve(remotes, interrupts, manner) if self._spares else None
            try:
                return launch(prepared, remotes, store, interrupts, manner, self._tell, reserve)
            except FleetError as error:
                # Somebody else has started since the hosts were read.
                if not self._patience.again(error, interrupts):
                    raise

    def _reserve(self, remotes: Mapping[str, Remote], interrupts: Interrupts, manner: Manner) -> Reserve:
        def again(order: Order, run_id: str) -> Prepared:
            forks, cancel = manner.forks, interrupts.cancel
            return prepare(order, remotes, forks=forks, cancel=cancel, tell=self._tell, run_id=run_id)

        return Reserve(self._order, self._spares, again)

    def _prepare(self, remotes: Mapping[str, Remote], interrupts: Interrupts, forks: int) -> Prepared:
        """Read, check and plan; what is not as it should be is shown, also where it forbids a start."""
        try:
            prepared = prepare(self._order, remotes, forks=forks, cancel=interrupts.cancel, tell=self._tell)
        except ChecksFailed as failed:
            if self._patience.again(failed, interrupts):
                return self._prepare(remotes, interrupts, forks)
            self._show_verdicts(failed.verdicts)
            raise
        self._show_verdicts(prepared.verdicts)
        for note in (*prepared.notes, *environment.lines(prepared.plan.nodes)):
            self._words.say(note)
        return prepared

    def _show_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        for line, colour in checks.exceptions(verdicts):
            self._words.insist(line, colour)

    def _with_diagnosis(self, event: Event) -> Event:
        """The end of a run, and of one that failed what is plain about it from the logs here."""
        found = None
        store = RunStore(state_directory(os.environ))
        if has_failed(event.data):
            # A disk that is full here is no reason to lose the run's own end.
            with contextlib.suppress(OSError, ClusterkitError):
                record = replace(store.load(event.run_id), status=event.data)
                found = in_short(record, store, self._rules, self._order.tables or tables.load())
        return replace(event, data={**event.data, "diagnosis": found})

    def _tell(self, event: Event) -> None:
        if event.kind == "ended":
            event = self._with_diagnosis(event)
        self._run_id = event.run_id if event.kind == "planned" else self._run_id
        try:
            if not self._json:
                self._report.show(event)
            elif event.kind != "progress":
                write_event(event)
        except ReaderGone:
            # A job of days does not end because somebody left the pager.
            forget_reader(sys.stdout)
            self._words.say("nobody reads the output any more; the job goes on, and `clusterkit logs` has it")
