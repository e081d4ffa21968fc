"""From a command's words to what the use cases take: an inventory's members, a recorded run, connections."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from clusterkit import finding, tables
from clusterkit import inventory as inventories
from clusterkit.diagnosis import rules
from clusterkit.diagnosis.rules import Rule
from clusterkit.errors import ClusterkitError, InputError, named
from clusterkit.interrupts import Interrupts
from clusterkit.inventory.model import Inventory, Secret, Settings
from clusterkit.remote import Connections, ConnectOptions, Prompter, Remote, terminal_prompter
from clusterkit.report.terminal import Words
from clusterkit.runs.record import RunRecord, RunStore, state_directory

# The group whose hosts wait until one of a run is gone.
SPARES = "spares"


@dataclass(frozen=True)
class Members:
    """The hosts that a command is about, in the order of the inventory."""

    inventory: Inventory
    settings: tuple[Settings, ...]
    spares: tuple[Settings, ...] = ()


@dataclass(frozen=True)
class Access:
    """What the command line says about logging in."""

    ask_pass: bool = False
    ask_become_pass: bool = False
    strict_host_keys: bool = False

    def options(self) -> ConnectOptions:
        """Connection options; asks for the passwords that `--ask-pass` and `--ask-become-pass` promise."""
        prompter = terminal_prompter()
        if prompter is None and (self.ask_pass or self.ask_become_pass):
            raise InputError(
                "there is no terminal to ask for a password on",
                "put ansible_password or ansible_become_password into host_vars, or use a key",
            )
        return ConnectOptions(
            strict_host_keys=self.strict_host_keys,
            prompter=prompter,
            password=_asked(prompter, "SSH password") if self.ask_pass else None,
            become_password=_asked(prompter, "sudo password") if self.ask_become_pass else None,
        )


def members(argument: str | None, limit: str | None, words: Words) -> Members:
    """The inventory that is meant, and its hosts after `hosts` in clusterkit.toml and `--limit`."""
    cwd = Path.cwd()
    found = inventories.find(argument, cwd, os.environ)
    inventory = inventories.load(found.path)
    warnings = list(inventory.warnings)
    taking_part = {host.name for host in inventories.select(inventory, inventories.members_pattern(cwd))}
    chosen = [host for host in inventories.select(inventory, limit or "all") if host.name in taking_part]
    if not chosen:
        raise InputError(
            f"{found.path}: no host takes part", "see `clusterkit inventory --graph`, and --limit"
        )
    settings = []
    for host in chosen:
        one, notes = inventories.settings(inventory, host)
        settings.append(one)
        warnings += notes
    for warning in dict.fromkeys(warnings):
        words.say(f"warning: {warning}", "yellow")
    return Members(inventory, tuple(settings), _spares(inventory, taking_part))


def _spares(inventory: Inventory, taking_part: set[str]) -> tuple[Settings, ...]:
    """The hosts of the group `spares` that do not take part, in the order of the inventory."""
    if SPARES not in inventory.groups:
        return ()
    hosts = [host for host in inventories.select(inventory, SPARES) if host.name not in taking_part]
    return tuple(inventories.settings(inventory, host)[0] for host in hosts)


def site_tables() -> tables.Tables:
    """The shipped tables with what `clusterkit.toml` names over them, so that a slip there shows at once."""
    return tables.load(*(inventories.project_file(Path.cwd(), key) for key in ("driver_table", "xid_table")))


def site_rules() -> tuple[Rule, ...]:
    """The known failures: the site's own that `clusterkit.toml` names, and the shipped ones."""
    return rules.load(inventories.project_file(Path.cwd(), "diagnoses"))


def recorded_run(run: str | None, inventory: str | None, access: Access) -> tuple[RunStore, RunRecord]:
    """The run that is meant: by its id, else the newest of this inventory, else the newest of all.

    With an inventory its hosts are asked too, so that a run from another machine is found; it is recorded
    here then. Raises NotFound.
    """
    store = RunStore(state_directory(os.environ))
    if inventory is None:
        return store, store.newest(_inventory_path(None)) if run is None else store.load(run)
    if run is not None and run in store.identifiers():
        return store, store.load(run)
    path = str(inventories.find(inventory, Path.cwd(), os.environ).path.resolve())
    words = Words()
    with hosts_of(path, access, words) as hosts:
        return store, _on_hosts_or_here(run, hosts, store, words)


@contextmanager
def hosts_of(inventory: str, access: Access, words: Words) -> Iterator[finding.Hosts]:
    """Every host of an inventory, connected, to look for runs on."""
    loaded = inventories.load(Path(inventory))
    members = [inventories.settings(loaded, host)[0] for host in loaded.hosts.values()]
    with Interrupts() as interrupts, remotes_of(members, access, words) as remotes:
        by_alias = {each.alias: each for each in members}
        yield finding.Hosts(inventory, by_alias, remotes, cancel=interrupts.cancel)


def runs_of(store: RunStore, inventory: str) -> list[str]:
    """The runs recorded here that were started from this inventory."""
    return [record.run_id for record in store.records() if record.inventory == inventory]


def look_on(hosts: finding.Hosts, words: Words) -> finding.Found:
    """Which hosts have which runs; who does not answer is named."""
    words.progress(f"asking {len(hosts.members)} hosts for runs")
    found = finding.look(hosts)
    words.clear()
    for host, error in found.silent.items():
        words.say(f"{named(host, error.message)}; runs that are only there are not seen", "yellow")
    return found


def _on_hosts_or_here(run: str | None, hosts: finding.Hosts, store: RunStore, words: Words) -> RunRecord:
    """The run that `run` names, else the newest, of those on the hosts and those recorded here."""
    found = look_on(hosts, words)
    here = store.identifiers() if run else runs_of(store, hosts.inventory)
    run_id = finding.choose(run, found, here, hosts.inventory)
    if run_id in store.identifiers():
        return store.load(run_id)
    record = finding.read(run_id, found, hosts)
    store.save(record)
    return record


def _inventory_path(inventory: str | None) -> str | None:
    try:
        return str(inventories.find(inventory, Path.cwd(), os.environ).path.resolve())
    except ClusterkitError:
        if inventory is not None:
            raise
        return None


@contextmanager
def remotes_of(settings: Sequence[Settings], access: Access, words: Words) -> Iterator[Mapping[str, Remote]]:
    """Connections to these hosts, by alias; host keys that were recorded on the way are shown at the end."""
    with Connections(access.options()) as connections:
        try:
            yield {each.alias: connections.to(each) for each in settings}
        finally:
            for key in connections.recorded_keys:
                words.say(f"{key.host}: trusted a new host key for {key.name}: {key.kind} {key.fingerprint}")
            for warning in connections.warnings:
                words.say(f"warning: {warning}", "yellow")


@contextmanager
def run_remotes(record: RunRecord, inventory: str | None, access: Access) -> Iterator[Mapping[str, Remote]]:
    """Connections to a run's hosts: as they were reached, with the secrets that the inventory has today."""
    path = inventory or record.inventory
    current = {each.alias: each for each in _todays_settings(path)}
    # A node without a way to it is one of a run that was found on the other hosts.
    absent = {node.host: finding.Absent(node.host, path) for node in record.nodes if not node.reach}
    settings = [node.settings(current.get(node.host)) for node in record.nodes if node.reach]
    with remotes_of(settings, access, Words()) as remotes:
        yield {**remotes, **absent}


def run_settings(record: RunRecord, inventory: str | None) -> dict[str, Settings]:
    """Each host of a run as it was reached, with what today's inventory permits there (`ansible_become`)."""
    current = {each.alias: each for each in _todays_settings(inventory or record.inventory)}
    return {
        node.host: replace(
            node.settings(current.get(node.host)),
            become=current[node.host].become if node.host in current else False,
            become_user=current[node.host].become_user if node.host in current else "root",
        )
        for node in record.nodes
    }


def _todays_settings(path: str) -> list[Settings]:
    try:
        inventory = inventories.load(Path(path))
        return [inventories.settings(inventory, host)[0] for host in inventory.hosts.values()]
    except (ClusterkitError, OSError):
        # The run remembers how its hosts were reached; only secrets would have come from here.
        return []


def _asked(prompter: Prompter | None, question: str) -> Secret | None:
    return Secret(prompter(question, False)) if prompter else None
