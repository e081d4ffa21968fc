"""How to connect: time limits, strictness, and where secrets come from. Given once, used for every host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from clusterkit.inventory.model import Secret

# Asks the person at the terminal a question; `echo` says whether the answer may be shown while it is typed.
Prompter = Callable[[str, bool], str]


@dataclass(frozen=True)
class Timeouts:
    """Seconds that each stage of a connection may take."""

    name: float = 10.0
    connect: float = 10.0
    banner: float = 15.0
    authentication: float = 30.0


@dataclass(frozen=True)
class ConnectOptions:
    """What holds for the connections to all hosts.

    `password` and `become_password` are what `--ask-pass` and `--ask-become-pass` brought; an inventory's own
    value wins for its host. Without `prompter` nobody is asked, and an error says what to pass instead.
    """

    timeouts: Timeouts = field(default_factory=Timeouts)
    strict_host_keys: bool = False
    prompter: Prompter | None = None
    password: Secret | None = None
    become_password: Secret | None = None
    # Simultaneous session starts through one bastion: sshd drops more than 10 that are not yet authenticated.
    starts_per_bastion: int = 8
    # Seconds during which a sshd that drops connections (MaxStartups) is tried again.
    retry_for: float = 20.0
