"""What Ansible itself makes of inventories: `ansible-inventory` and host patterns, many files in one process.

Run as a program: reads `[{"path": …, "patterns": […]}]` as JSON from stdin, writes one JSON list to stdout.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

from ansible.cli.inventory import InventoryCLI  # type: ignore[import-untyped,import-not-found,unused-ignore]
from ansible.errors import AnsibleError  # type: ignore[import-untyped,import-not-found,unused-ignore]
from ansible.inventory.manager import InventoryManager  # type: ignore[import-untyped,import-not-found,unused-ignore]
from ansible.parsing.dataloader import DataLoader  # type: ignore[import-untyped,import-not-found,unused-ignore]
from ansible.vars.manager import VariableManager  # type: ignore[import-untyped,import-not-found,unused-ignore]


def start(path: str) -> InventoryCLI:
    """The program itself, run once on one file so that its options and plugins are set up."""
    program = InventoryCLI(["ansible-inventory", "-i", path, "--list"])
    with contextlib.suppress(SystemExit):
        program.run()
    return program


def answer(program: InventoryCLI, path: str, patterns: list[str]) -> dict[str, Any]:
    """One inventory: the listing, the graph, the groups, and the hosts of each pattern (None: refused)."""
    program.loader = DataLoader()
    program.inventory = InventoryManager(loader=program.loader, sources=[path])
    program.vm = VariableManager(loader=program.loader, inventory=program.inventory)
    return {
        "list": json.loads(program.dump(program.json_inventory(program.inventory.groups["all"]))),
        "graph": program.inventory_graph(),
        "groups": list(program.inventory.groups),
        "patterns": {pattern: hosts(program, pattern) for pattern in patterns},
    }


def hosts(program: InventoryCLI, pattern: str) -> list[str] | None:
    """The names of the hosts of a pattern, None where Ansible refuses it."""
    try:
        return [host.name for host in program.inventory.get_hosts(pattern)]
    except AnsibleError:
        return None


def main() -> None:
    """Answer all requests; whatever Ansible prints by itself is dropped."""
    requests = json.load(sys.stdin)
    with contextlib.redirect_stdout(io.StringIO()):
        program = start(requests[0]["path"])
        answers = [answer(program, request["path"], request["patterns"]) for request in requests]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
