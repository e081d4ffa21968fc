"""An inventory's settings become an Endpoint: ssh_config asked, bastions followed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast

from clusterkit.errors import Unreachable
from clusterkit.inventory.model import Secret, Settings
from clusterkit.remote.endpoint import Endpoint, HostKeyRule
from clusterkit.remote.options import ConnectOptions
from clusterkit.remote.sshconfig import Answer, Asked, ConfigRefused, config_file, look_up
from clusterkit.remote.tokens import expand_command, expand_path, known_tokens, local_user

_LONGEST_CHAIN = 8
_METHODS = {
    "publickey": "pubkeyauthentication",
    "keyboard-interactive": "kbdinteractiveauthentication",
    "password": "passwordauthentication",
}


def resolve(settings: Settings, options: ConnectOptions, warn: Callable[[str], None]) -> Endpoint:
    """Where `settings` lead, with every bastion on the way. Raises Unreachable (stage `configuration`)."""
    args = _arguments(settings)
    identity = settings.private_key_file
    asked = Asked(
        settings.address,
        settings.port,
        settings.user,
        str(Path(identity).expanduser().absolute()) if identity else None,
        args,
    )
    return _Resolver(settings.alias, options, warn).follow(
        asked, settings.alias, settings.password or options.password
    )


def _arguments(settings: Settings) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(f"{settings.ssh_common_args} {settings.ssh_extra_args}"))
    except ValueError as error:
        raise Unreachable(
            settings.alias,
            "configuration",
            f"{settings.alias}: ansible_ssh_common_args or ansible_ssh_extra_args cannot be read: {error}",
            "close the quotes in the inventory",
        ) from error


class _Resolver:
    """Follows one host's chain of bastions."""

    def __init__(self, alias: str, options: ConnectOptions, warn: Callable[[str], None]) -> None:
        self._alias = alias
        self._options = options
        self._warn = warn

    def follow(
        self, asked: Asked, label: str, password: Secret | None, jumps: str = "", depth: int = 0
    ) -> Endpoint:
        """The endpoint of one question; `jumps` are the bastions before it that a ProxyJump named."""
        if depth > _LONGEST_CHAIN:
            raise self._refused(
                f"its ProxyJump goes round in circles at {asked.host}", "see `ssh -G` for each bastion"
            )
        answer = self._look_up(asked)
        host = answer.first("hostname", asked.host)
        port = int(answer.first("port", "22"))
        user = answer.first("user") or local_user()
        alias = answer.first("hostkeyalias") or None
        tokens = known_tokens(host=host, name=asked.host, port=port, user=user, alias=alias)
        jump = self._jump(jumps or answer.first("proxyjump"), asked, (host, port), depth)
        command = answer.first("proxycommand")
        return Endpoint(
            label=label,
            address=host,
            port=port,
            user=user,
            host_key_alias=alias,
            host_key_rule=_host_key_rule(answer, self._options),
            known_hosts=_paths(answer, "userknownhostsfile", "~/.ssh/known_hosts", tokens),
            global_known_hosts=_paths(answer, "globalknownhostsfile", "/etc/ssh/ssh_known_hosts", tokens),
            hash_names=answer.yes("hashknownhosts", False),
            identity_files=_identities(answer, tokens),
            certificate_files=tuple(expand_path(path, tokens) for path in answer.every("certificatefile")),
            identities_only=answer.yes("identitiesonly", False),
            agent=_agent(answer, tokens),
            methods=tuple(method for method, keyword in _METHODS.items() if answer.yes(keyword, True)),
            password=password,
            ask=not answer.yes("batchmode", False),
            proxy_command=expand_command(command, tokens) if command and jump is None and not jumps else None,
            jump=jump,
            family=cast(Literal["any", "inet", "inet6"], answer.first("addressfamily", "any")),
            bind_address=answer.first("bindaddress") or None,
        )

    def _look_up(self, asked: Asked) -> Answer:
        try:
            answer = look_up(asked, self._options.timeouts.name)
        except TimeoutError:
            raise self._refused(
                f"`ssh -G {asked.host}` did not answer in {self._options.timeouts.name:g} s",
                "look for a slow `Match exec` or CanonicalizeHostname in ~/.ssh/config",
            ) from None
        except ConfigRefused as error:
            raise self._refused(
                f"the ssh configuration cannot be used: {error}",
                "check ansible_ssh_common_args, ansible_ssh_extra_args and ~/.ssh/config",
            ) from error
        for warning in answer.warnings:
            self._warn(warning)
        return answer

    def _jump(self, jumps: str, asked: Asked, target: tuple[str, int], depth: int) -> Endpoint | None:
        """The last bastion of a comma-separated chain; it is reached by way of the ones before it."""
        before, _, last = jumps.rpartition(",")
        if not last.strip():
            return None
        user, host, port = _parse_hop(last.strip())
        if (host.lower(), port or 22) == (target[0].lower(), target[1]):
            return None  # `Host *` with a ProxyJump also matches the bastion itself: ssh goes there directly
        hop = Asked(host, port, user, None, config_file(asked.args))
        return self.follow(hop, f"bastion {host}", self._options.password, before, depth + 1)

    def _refused(self, message: str, hint: str) -> Unreachable:
        return Unreachable(self._alias, "configuration", f"{self._alias}: {message}", hint)


def _parse_hop(hop: str) -> tuple[str | None, str, int | None]:
    """`[ssh://][user@]host[:port]`, as ProxyJump has it."""
    hop = hop.removeprefix("ssh://").rstrip("/")
    user, _, rest = hop.rpartition("@")
    bracketed = re.fullmatch(r"\[(.+)\](?::(\d+))?", rest)
    if bracketed:
        return user or None, bracketed[1], int(bracketed[2]) if bracketed[2] else None
    if rest.count(":") == 1:
        host, _, port = rest.partition(":")
        return user or None, host, int(port) if port.isdigit() else None
    return user or None, rest, None


def _host_key_rule(answer: Answer, options: ConnectOptions) -> HostKeyRule:
    said = answer.first("stricthostkeychecking", "ask").lower()
    if options.strict_host_keys or said in ("yes", "true"):
        return "strict"
    return "off" if said in ("no", "off", "false") else "trust first"


def _paths(answer: Answer, keyword: str, default: str, tokens: dict[str, str]) -> tuple[Path, ...]:
    """`ssh -G` prints a list of files unquoted: a blank ends a name only where another one can begin."""
    names = re.split(
        r"\s+(?=[/~%$]|none$)", answer.first(keyword, "" if keyword in answer.values else default)
    )
    return tuple(expand_path(name.strip('"'), tokens) for name in names if name and name != "none")


def _identities(answer: Answer, tokens: dict[str, str]) -> tuple[Path, ...]:
    names = answer.every("identityfile")
    if "identityfile" not in answer.values:
        names = [f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ed25519")]
    return tuple(dict.fromkeys(expand_path(name, tokens) for name in names))


def _agent(answer: Answer, tokens: dict[str, str]) -> str | None:
    """The agent's socket: `IdentityAgent`, else what SSH_AUTH_SOCK holds; None where there is none."""
    named = answer.values.get("identityagent", ["SSH_AUTH_SOCK"])[0]
    if named.lower() == "none":
        return None
    if named == "SSH_AUTH_SOCK":
        named = "${SSH_AUTH_SOCK}"
    elif named.startswith("$") and not named.startswith("${"):
        named = "${" + named[1:] + "}"
    found = str(expand_path(named, tokens))
    return None if found == "." else found
