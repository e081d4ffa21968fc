"""`clusterkit sandbox`: throwaway real hosts on this machine, and what may befall them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from clusterkit.sandbox import Bind, HostStatus, Sandbox, SandboxSpec

app = typer.Typer(
    help="Real throwaway hosts on this Linux machine, to rehearse and to test on (needs root).",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Option("--name", help="Which sandbox; several can be up at once.")]
HostName = Annotated[str, typer.Argument(metavar="HOST", help="A host of the sandbox, such as node02.")]
Network = Annotated[
    int | None,
    typer.Option(
        "--network",
        min=0,
        max=3,
        show_default=False,
        help="Only the cable of eth0, eth1, …; by default all cables of the host.",
    ),
]


@app.command()
def up(
    hosts: Annotated[int, typer.Option("--hosts", min=1, max=250, help="How many hosts.")] = 2,
    gpus: Annotated[
        int, typer.Option("--gpus", min=0, max=16, help="GPUs that a stand-in nvidia-smi shows on each host.")
    ] = 0,
    nproc: Annotated[
        int, typer.Option("--nproc", min=1, help="nproc_per_node in the inventory, where there are no GPUs.")
    ] = 2,
    name: Name = "sandbox",
    python: Annotated[
        list[str] | None,
        typer.Option(
            "--python",
            metavar="PATH",
            show_default=False,
            help="An interpreter of this machine that the hosts have too; may be repeated, the first becomes "
            "the inventory's `python`. Default: the one that runs clusterkit.",
        ),
    ] = None,
    bind: Annotated[
        list[str] | None,
        typer.Option(
            "--bind",
            metavar="PATH[:TARGET[:ro]]",
            show_default=False,
            help="A file or directory of this machine that every host has too; may be repeated. "
            "The hosts can write to it unless it ends in :ro.",
        ),
    ] = None,
    networks: Annotated[
        int,
        typer.Option(
            "--networks",
            min=1,
            max=4,
            help="With 2, the hosts train on eth1, which this machine cannot reach.",
        ),
    ] = 1,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="NAME",
            show_default=False,
            help="Log in as this user, who may sudo; else as root.",
        ),
    ] = None,
    shared_home: Annotated[
        bool, typer.Option("--shared-home", help="/home and /root are one directory for all hosts.")
    ] = False,
    containers: Annotated[
        bool, typer.Option("--containers", help="Docker and Podman can run there (nothing starts them).")
    ] = False,
    inventory: Annotated[
        Path, typer.Option("--inventory", metavar="FILE", help="Where the inventory is written.")
    ] = Path("sandbox.ini"),
) -> None:
    """Bring hosts up and write an inventory; the same once more restores what was killed or cut."""
    import time

    from clusterkit.sandbox import Sandbox, SandboxSpec, User

    began = time.monotonic()
    spec = SandboxSpec.of(
        hosts,
        name=name,
        networks=networks,
        python=tuple(os.path.abspath(path) for path in python) if python else None,  # noqa: PTH100
        binds=tuple(_bind(text) for text in bind or ()),
        shared_home=shared_home,
        gpus=gpus,
        nproc=nproc,
        containers=containers,
        user=User(user) if user else None,
    )
    sandbox = Sandbox.up(spec, inventory)
    _say_up(sandbox, spec, time.monotonic() - began)


@app.command()
def status(
    name: Annotated[
        str | None, typer.Option("--name", show_default=False, help="Only this sandbox; by default all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")] = False,
) -> None:
    """Show every host: its address, whether it runs, is cut or was killed, and its sshd."""
    from clusterkit.sandbox import Sandbox, state

    names = (name,) if name else state.names()
    found = [(one, there) for one in names if (there := state.load(one)) is not None and there.phase == "up"]
    if as_json:
        shown = [_as_json(Sandbox.open(one)) for one, _ in found]
        typer.echo(json.dumps({"schema": 1, "sandboxes": shown}, indent=1))
        return
    if not found:
        which = f"sandbox {name} is not up" if name else "no sandbox is up"
        typer.echo(f"{which}; `clusterkit sandbox up --hosts 4` brings one up", err=True)
    for one, there in found:
        sandbox = Sandbox.open(one)
        typer.echo(f"sandbox {one}: {', '.join(there.subnets)}, inventory {there.inventory}")
        for line in _table(sandbox.status()):
            typer.echo(f"  {line}")


@app.command()
def down(
    name: Name = "sandbox",
    forget: Annotated[bool, typer.Option("--forget", help="Remove its keys as well.")] = False,
) -> None:
    """End all hosts and remove everything but the keys, which the next `up` of that name uses again."""
    from clusterkit.sandbox import lifecycle

    notes = lifecycle.down(name, forget=forget).notes
    for note in notes or (f"sandbox {name} is down",):
        typer.echo(note)


@app.command()
def kill(host: HostName, name: Name = "sandbox") -> None:
    """Cut a host's power: its peers see neither FIN nor RST, and everything on it is gone."""
    _open(name).kill(host)
    typer.echo(f"{host} has no power; `clusterkit sandbox start {host}{_flag(name)}` brings it back")


@app.command()
def start(
    host: HostName,
    fresh: Annotated[bool, typer.Option("--fresh", help="With an empty disk, as installed anew.")] = False,
    name: Name = "sandbox",
) -> None:
    """Bring a killed host back, with its address, its host key and what was on its disk."""
    _open(name).start(host, fresh=fresh)
    typer.echo(f"{host} is running")


@app.command()
def cut(host: HostName, network: Network = None, name: Name = "sandbox") -> None:
    """Pull a host's network cable; everything on it runs on."""
    _open(name).cut(host, network)
    typer.echo(f"{host} has no network; `clusterkit sandbox mend {host}{_flag(name)}` plugs it in again")


@app.command()
def mend(host: HostName, network: Network = None, name: Name = "sandbox") -> None:
    """Plug a host's network cable in again."""
    _open(name).mend(host, network)
    typer.echo(f"{host} has its network back")


@app.command()
def sshd(
    host: HostName,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="stop, start, restart, pause or resume.")],
    name: Name = "sandbox",
) -> None:
    """Stop a host's sshd, or let it hang (pause); sessions that are open go on."""
    from clusterkit.errors import InputError

    if action not in ("stop", "start", "restart", "pause", "resume"):
        raise InputError(f"sshd cannot {action!r}", "use stop, start, restart, pause or resume")
    _open(name).sshd(host, action)  # type: ignore[arg-type]
    typer.echo(f"{host}: sshd {action}: done")


@app.command(context_settings={"ignore_unknown_options": True})
def sh(
    host: HostName,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- CMD…]", help="By default a shell.", show_default=False),
    ] = None,
    name: Name = "sandbox",
) -> None:
    """Run a command as root on a host without ssh; its exit code is passed on."""
    import subprocess

    from clusterkit.sandbox import entry

    argv = entry.entering(_open(name).init(host), command or ["/bin/bash", "-l"])
    sys.stdout.flush()
    code = subprocess.run(argv, check=False).returncode
    raise typer.Exit(code if code >= 0 else 128 - code)


def _open(name: str) -> Sandbox:
    from clusterkit.sandbox import Sandbox, requirements

    requirements.check()
    return Sandbox.open(name)


def _flag(name: str) -> str:
    return "" if name == "sandbox" else f" --name {name}"


def _bind(text: str) -> Bind:
    from clusterkit.errors import InputError
    from clusterkit.sandbox import Bind

    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    source = os.path.abspath(source)  # noqa: PTH100
    if not os.path.exists(source):  # noqa: PTH110
        raise InputError(
            f"--bind {text}: {source} does not exist", "give a file or directory of this machine"
        )
    if target == "ro" and not mode:
        target, mode = "", "ro"
    if mode not in ("", "ro", "rw") or (target and not target.startswith("/")):
        raise InputError(
            f"--bind {text} cannot be read", "write PATH, PATH:TARGET or PATH:TARGET:ro, TARGET absolute"
        )
    return Bind(source, target or source, mode == "ro")


def _say_up(sandbox: Sandbox, spec: SandboxSpec, seconds: float) -> None:
    for note in sandbox.notes:
        typer.echo(note)
    count = f"{len(spec.hosts)} host{'s' if len(spec.hosts) > 1 else ''}"
    if not sandbox.created:
        typer.echo(f"sandbox {spec.name} is up: {count}")
    else:
        typer.echo(f"sandbox {spec.name} came up in {seconds:.1f} s: {count}, {sandbox.state.subnets[0]}")
    if spec.hosts[0].gpus:
        typer.echo("nvidia-smi on these hosts is a stand-in: there is no GPU behind it")
    typer.echo(f"inventory: {sandbox.inventory}")
    typer.echo(f"log in:    ssh -F {sandbox.ssh_config} {spec.hosts[0].name}")
    typer.echo(f"end it:    clusterkit sandbox down{_flag(spec.name)}")


def _table(hosts: tuple[HostStatus, ...]) -> list[str]:
    rows = [("HOST", "ADDRESS", "NODE IP", "STATE", "SSHD")]
    rows += [(one.name, one.address, one.node_ip, _condition(one), str(one.sshd_pid or "-")) for one in hosts]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _condition(host: HostStatus) -> str:
    if host.condition != "cut":
        return host.condition
    return "cut (" + " ".join(f"eth{network}" for network in host.cut) + ")"


def _as_json(sandbox: Sandbox) -> dict[str, Any]:
    from dataclasses import asdict

    there = sandbox.state
    return {
        "name": sandbox.name,
        "subnets": there.subnets,
        "controller": sandbox.controller,
        "inventory": there.inventory,
        "ssh_config": str(sandbox.ssh_config),
        "hosts": [asdict(host) for host in sandbox.status()],
    }
