"""Who we are: agent keys, certificates, key files, passwords and the server's questions, in ssh's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import paramiko
from paramiko.agent import AgentKey
from paramiko.ssh_exception import AuthenticationException, BadAuthenticationType, SSHException

from clusterkit.errors import Unreachable
from clusterkit.inventory.model import Secret
from clusterkit.remote.agents import Agents
from clusterkit.remote.endpoint import Endpoint
from clusterkit.remote.keys import KeyFile, KeyRing, Unusable, with_certificate
from clusterkit.remote.secrets import AskedOnce

# A person is typing meanwhile; sshd itself gives up after LoginGraceTime, 120 s by default.
_PERSON_S = 120.0


class Login:
    """One endpoint's authentication. Paramiko calls `authenticate` once the host key is accepted."""

    def __init__(
        self,
        endpoint: Endpoint,
        keys: KeyRing,
        agents: Agents,
        asked: AskedOnce,
        suspicious: Callable[[], bool],
    ) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._agents = agents
        self._asked = asked
        self._suspicious = suspicious
        self._tried: list[str] = []
        self._skipped: list[str] = []
        self._allowed: tuple[str, ...] | None = None

    def authenticate(self, transport: paramiko.Transport) -> list[str]:
        """Logs in. Raises Unreachable (stage `authentication`) with what was tried."""
        for attempt in self._attempts(transport):
            try:
                if not attempt():
                    return []
            except BadAuthenticationType as error:
                self._allowed = tuple(error.allowed_types)
            except SSHException as error:
                if not transport.is_active():
                    raise self._cut_off(error) from error
                if "timeout" in str(error).lower():
                    raise self._too_slow(transport) from error
        raise self._refused()

    def _attempts(self, transport: paramiko.Transport) -> Iterator[Callable[[], Sequence[str]]]:
        user = self._endpoint.user
        if "publickey" in self._endpoint.methods:
            for name, key in self._public_keys():
                if not self._may("publickey"):
                    break
                self._tried.append(name)
                yield lambda key=key: self._note(transport.auth_publickey(user, key))  # type: ignore[misc]
        if self._allowed is None:
            yield lambda: self._note(self._ask_methods(transport))
        if self._suspicious():
            self._skipped.append("passwords, since the host key has changed")
            return
        password = self._endpoint.password
        if password is not None and "password" in self._endpoint.methods and self._may("password"):
            self._tried.append("the password")
            yield lambda: self._note(transport.auth_password(user, password.reveal(), fallback=False))
        if "keyboard-interactive" in self._endpoint.methods and self._may("keyboard-interactive"):
            if password is None and not self._can_ask():
                self._skipped.append("the server's questions, since nobody can be asked")
            else:
                yield lambda: self._note(self._interactive(transport))

    def _note(self, more: Sequence[str]) -> Sequence[str]:
        """A step of several was accepted: what the server wants next."""
        if more:
            self._allowed = tuple(more)
        return more

    def _may(self, method: str) -> bool:
        return self._allowed is None or method in self._allowed

    def _can_ask(self) -> bool:
        return self._endpoint.ask and self._asked.possible

    def _ask_methods(self, transport: paramiko.Transport) -> Sequence[str]:
        """Which methods the server takes (RFC 4252, 5.2): `none` is refused with their list."""
        transport.auth_none(self._endpoint.user)
        return []

    # Public keys

    def _public_keys(self) -> Iterator[tuple[str, paramiko.PKey]]:
        """Keys in the order in which the server sees them; sshd counts each, and stops after MaxAuthTries."""
        files = [
            found for path in self._endpoint.identity_files if (found := self._keys.look(path)) is not None
        ]
        in_agent = self._agent_keys()
        configured = {file.public for file in files}
        first = [key for key in in_agent if _public(key) in configured]
        later = [key for key in in_agent if key not in first] if not self._endpoint.identities_only else []
        held = {_public(key) for key in first}
        on_disk = [file for file in files if file.public not in held]
        yield from self._of_agent(first)
        yield from self._of_files([file for file in on_disk if not file.locked])
        yield from self._of_agent(later)
        yield from self._of_files([file for file in on_disk if file.locked])

    def _agent_keys(self) -> tuple[AgentKey, ...]:
        path = self._endpoint.agent
        if path is None:
            return ()
        found = self._agents.keys(path)
        if problem := self._agents.problem(path):
            self._skipped.append(problem)
        return found

    def _of_agent(self, keys: Sequence[AgentKey]) -> Iterator[tuple[str, paramiko.PKey]]:
        for key in keys:
            name = f"agent key {key.comment or key.get_name()}"
            for certificate in self._endpoint.certificate_files:
                certified = with_certificate(key, certificate)
                if certified is not None:
                    yield f"{name} with {certificate}", certified
            yield name, key

    def _of_files(self, files: Sequence[KeyFile]) -> Iterator[tuple[str, paramiko.PKey]]:
        for file in files:
            try:
                key = self._keys.load(file.path, ask=self._endpoint.ask)
            except Unusable as problem:
                self._skipped.append(str(problem))
                continue
            for certificate in self._certificates(file.path):
                certified = with_certificate(key, certificate)
                if certified is not None:
                    yield f"{file.path} with {certificate}", certified
            yield str(file.path), key

    def _certificates(self, path: Path) -> list[Path]:
        beside = path.with_name(path.name + "-cert.pub")
        return [found for found in (*self._endpoint.certificate_files, beside) if found.is_file()]

    # The server's questions

    def _interactive(self, transport: paramiko.Transport) -> Sequence[str]:
        self._tried.append("the server's questions")
        given: dict[str, Secret] = {}
        rounds: list[str] = []

        def answer(title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
            rounds.append(title)
            return [
                self._answer(title, instructions, *prompt, first=len(rounds) == 1, given=given)
                for prompt in prompts
            ]

        before = transport.auth_timeout
        transport.auth_timeout = _PERSON_S
        try:
            return transport.auth_interactive(self._endpoint.user, answer)
        except AuthenticationException:
            for question, secret in given.items():
                self._asked.forget(question, secret)
            raise
        finally:
            transport.auth_timeout = before

    def _answer(
        self, title: str, instructions: str, prompt: str, echo: bool, *, first: bool, given: dict[str, Secret]
    ) -> str:
        """The one hidden question of the first round is the password, if there is one; the rest is asked."""
        password = self._endpoint.password
        if password is not None and first and not echo:
            return password.reveal()
        heading = " ".join(part.strip() for part in (title, instructions) if part.strip())
        question = f"{heading}: {prompt.strip()}" if heading else f"{self._endpoint.user}'s {prompt.strip()}"
        secret = self._asked.ask(question, echo=echo) if self._endpoint.ask else None
        if secret is None:
            return ""
        given[question] = secret
        return secret.reveal()

    # What went wrong

    def _refused(self) -> Unreachable:
        user, tried = (
            self._endpoint.user,
            ", ".join(self._tried) or "nothing to try: no key, agent or password was found",
        )
        skipped = f"; not used: {'; '.join(self._skipped)}" if self._skipped else ""
        return self._unreachable(f"user {user} was not let in (tried: {tried}{skipped})", self._advice())

    def _advice(self) -> str:
        allowed = self._allowed or ()
        if any("passphrase" in reason for reason in self._skipped):
            return "load the key into an agent first: ssh-add"
        if allowed and "publickey" not in allowed and self._endpoint.password is None:
            return f"the server takes {', '.join(allowed)}: pass --ask-pass, or set ansible_password"
        if self._endpoint.password is not None and "the password" in self._tried:
            return "check ansible_user and the password"
        return "check ansible_user, and add your key on the host (ssh-copy-id), or pass --ask-pass"

    def _cut_off(self, error: SSHException) -> Unreachable:
        tried = ", ".join(self._tried) or "nothing yet"
        if len(self._tried) > 1:
            return self._unreachable(
                f"the server hung up on user {self._endpoint.user} after {len(self._tried)} tries ({tried})",
                "set ansible_ssh_private_key_file, and IdentitiesOnly=yes if an agent holds many keys",
            )
        return self._unreachable(
            f"the server hung up while user {self._endpoint.user} logged in (tried: {tried}): {error}",
            "see the host's own log: journalctl -u ssh",
        )

    def _too_slow(self, transport: paramiko.Transport) -> Unreachable:
        return self._unreachable(
            f"the log-in of user {self._endpoint.user} was not answered within {transport.auth_timeout:g} s",
            "see the host's own log: its directory service or PAM may hang",
        )

    def _unreachable(self, message: str, hint: str) -> Unreachable:
        return Unreachable(self._endpoint.label, "authentication", f"{self._endpoint.named}: {message}", hint)


def _public(key: AgentKey) -> bytes:
    """The plain public key, also of a certificate."""
    inner: paramiko.PKey = getattr(key, "inner_key", None) or key
    return bytes(inner.asbytes())
