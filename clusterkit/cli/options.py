"""Options that several commands share, and what they mean together."""

from __future__ import annotations

from typing import Annotated

import typer

Inventory = Annotated[
    str | None,
    typer.Argument(
        metavar="INVENTORY",
        help="Ansible INI inventory. Default: $CLUSTERKIT_INVENTORY, `inventory` in clusterkit.toml, "
        "./inventory.ini, the only file in ./inventories/.",
        show_default=False,
    ),
]
InventoryOption = Annotated[
    str | None,
    typer.Option(
        "--inventory",
        "-i",
        metavar="FILE",
        help="Look for runs on the hosts of this inventory too.",
        show_default=False,
    ),
]
Limit = Annotated[
    str | None,
    typer.Option(
        "--limit", "-l", metavar="PATTERN", help="Only these hosts: names, groups, globs, as in Ansible."
    ),
]
Forks = Annotated[int, typer.Option("--forks", "-f", min=1, metavar="N", help="How many hosts at once.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON (schema 1) on stdout and nothing else.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=1, metavar="SECONDS", help="Limit for one answer of one host.")
]
ReadingTimeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=1,
        metavar="SECONDS",
        help="Limit for reading one host. Changes and proofs have limits of their own.",
    ),
]
AskPass = Annotated[bool, typer.Option("--ask-pass", "-k", help="Ask once for the ssh password.")]
AskBecomePass = Annotated[
    bool, typer.Option("--ask-become-pass", "-K", help="Ask once for the sudo password.")
]
StrictHostKeys = Annotated[
    bool, typer.Option("--strict-host-keys", help="Refuse hosts whose key is not known yet.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the traceback of an error too.")]
Run = Annotated[
    str | None,
    typer.Option(
        "--run", "-r", metavar="ID", help="This run (a part of its id is enough). Default: the newest."
    ),
]

FORKS = 64
TIMEOUT_S = 60.0
READING_TIMEOUT_S = 90.0
