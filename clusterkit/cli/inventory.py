"""`clusterkit inventory`: what was understood of an inventory."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from clusterkit.cli.options import Inventory, Limit


def inventory(
    inventory: Inventory = None,
    limit: Limit = None,
    graph: Annotated[bool, typer.Option("--graph", help="Show the groups as a tree.")] = False,
    show_secrets: Annotated[bool, typer.Option("--show-secrets", help="Do not mask passwords.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON is what this command prints anyway.")] = False,
) -> None:
    """Show what was understood of an inventory, in the shape of `ansible-inventory --list` or as a graph."""
    from clusterkit import inventory as inventories
    from clusterkit.cli.session import members
    from clusterkit.report.terminal import Words

    chosen = members(inventory, limit, Words())
    shown = chosen.inventory
    if limit:
        shown = inventories.narrowed(shown, {settings.alias for settings in chosen.settings})
    if graph:
        print(inventories.graph(shown))
    else:
        print(json.dumps(inventories.listing(shown, show_secrets), indent=4, default=str))
