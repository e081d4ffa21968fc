"""The server's own questions (keyboard-interactive), by a real ssh server in this process."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import paramiko
import pytest
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED
from paramiko.server import InteractiveQuery

from clusterkit.errors import Unreachable
from clusterkit.inventory.model import Secret, Settings
from clusterkit.remote import Connections, ConnectOptions, fan_out


@dataclass
class Asking:
    """What the server asks, round after round, and which answers it takes."""

    rounds: tuple[tuple[str, bool, str], ...]
    title: str = ""
    given: list[str] = field(default_factory=list)


class _Door(paramiko.ServerInterface):
    """One connection's log-in: keyboard-interactive only."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._round = 0

    def get_allowed_auths(self, username: str) -> str:
        return "keyboard-interactive"

    def check_auth_interactive(self, username: str, submethods: str) -> InteractiveQuery:
        self._round = 0
        return self._query()

    def check_auth_interactive_response(self, responses: list[str]) -> InteractiveQuery | int:
        self._asking.given += responses
        if list(responses) != [self._asking.rounds[self._round][2]]:
            return AUTH_FAILED
        self._round += 1
        return self._query() if self._round < len(self._asking.rounds) else AUTH_SUCCESSFUL

    def _query(self) -> InteractiveQuery:
        prompt, echo, _ = self._asking.rounds[self._round]
        return InteractiveQuery(self._asking.title, "", (prompt, echo))

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=_serve, args=(channel,), daemon=True).start()
        return True


def _serve(channel: paramiko.Channel) -> None:
    """A shell's part: the script's marks, and nothing between them."""
    text = channel.recv(65536).decode()
    token = text.split("%s:begin:%s\\n' ")[1].split()[0]
    channel.sendall(f"{token}:begin:1\nlet in{token}:end:0\n".encode())
    channel.sendall_stderr(f"{token}:begin\n{token}:end\n".encode())
    channel.send_exit_status(0)
    channel.close()


@contextlib.contextmanager
def asking(*rounds: tuple[str, bool, str], title: str = "") -> Iterator[tuple[int, Asking]]:
    """A server that asks, on a port of 127.0.0.1."""
    what, key = Asking(rounds, title), paramiko.RSAKey.generate(2048)
    listener = socket.create_server(("127.0.0.1", 0))
    transports: list[paramiko.Transport] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                transport = paramiko.Transport(listener.accept()[0])
                transports.append(transport)
                transport.add_server_key(key)
                transport.start_server(threading.Event(), _Door(what))

    threading.Thread(target=accept, daemon=True).start()
    yield int(listener.getsockname()[1]), what
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for transport in transports:
        transport.close()
        transport.join(5)


def settings(port: int, alias: str = "gpu01", password: Secret | None = None) -> Settings:
    files = "-F /dev/null -o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null"
    args = f"{files} -o IdentityAgent=none -i /nowhere"
    return Settings(alias, "127.0.0.1", port, "me", password, ssh_common_args=args)


class Person:
    """Somebody who knows the answers."""

    def __init__(self, **answers: str) -> None:
        self._answers = answers
        self.asked: list[tuple[str, bool]] = []

    def __call__(self, question: str, echo: bool) -> str:
        self.asked.append((question, echo))
        return next((answer for word, answer in self._answers.items() if word in question), "")


def _connections(person: Person) -> Connections:
    return Connections(ConnectOptions(prompter=person))


def test_two_questions_are_asked_once_for_six_hosts() -> None:
    person = Person(Password="pw", Token="123")
    rounds = (("Password: ", False, "pw"), ("Token: ", True, "123"))
    with asking(*rounds, title="SSH log-in") as (port, _), _connections(person) as connections:
        remotes = {f"gpu{n}": connections.to(settings(port, f"gpu{n}")) for n in range(6)}
        outcome = fan_out(remotes, lambda remote: remote.run("x", timeout=20).text)
    assert outcome.good == {f"gpu{n}": "let in" for n in range(6)}
    assert person.asked == [("SSH log-in: Password:", False), ("SSH log-in: Token:", True)]


def test_the_password_answers_the_first_hidden_question() -> None:
    with asking(("Password: ", False, "pw")) as (port, what), Connections() as connections:
        remote = connections.to(settings(port, password=Secret("pw")))
        assert remote.run("x", timeout=20).text == "let in"
    assert what.given == ["pw"]


def test_a_wrong_answer_is_not_used_again() -> None:
    person = Person(me="typo")
    with asking(("Password: ", False, "pw")) as (port, what), _connections(person) as connections:
        for alias in ("gpu01", "gpu02"):
            with pytest.raises(Unreachable, match="the server's questions") as caught:
                connections.to(settings(port, alias)).run("x", timeout=20)
            assert caught.value.stage == "authentication"
    assert person.asked == [("me's Password:", False)] * 2
    assert what.given == ["typo", "typo"]


def test_without_a_person_or_a_password_the_error_says_what_to_pass() -> None:
    with asking(("Password: ", False, "pw")) as (port, what), Connections() as connections:
        with pytest.raises(Unreachable, match="nobody can be asked") as caught:
            connections.to(settings(port)).run("x", timeout=20)
        assert "--ask-pass" in caught.value.hint
    assert what.given == []
