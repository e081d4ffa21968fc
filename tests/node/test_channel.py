"""The channel's messages: who is let in, and what is noticed."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from clusterkit.node.channel import Channel, ChannelError, ConnectingEnd, ListeningEnd
from clusterkit.node.clock import ClockOffset
from clusterkit.node.connection import Connection

KEY = os.urandom(32)


def proven(key: bytes = KEY, other: bytes = KEY, rank: int = 3) -> tuple[ListeningEnd, ConnectingEnd]:
    """Both ends after the handshake."""
    listener, connector = ListeningEnd(key), ConnectingEnd(other, rank)
    connector.receive(listener.replies())
    listener.receive(connector.replies())
    connector.receive(listener.replies())
    return listener, connector


def test_messages_both_ways() -> None:
    listener, connector = proven()
    assert listener.proven
    assert connector.proven
    assert listener.node_rank == 3
    assert listener.receive(connector.message({"state": 1}) + connector.message([2])) == [{"state": 1}, [2]]
    assert connector.receive(listener.message({"decision": "é"})) == [{"decision": "é"}]


def test_bytes_may_come_one_by_one() -> None:
    listener, connector = ListeningEnd(KEY), ConnectingEnd(KEY, 1)
    for byte in listener.replies():
        connector.receive(bytes([byte]))
    for byte in connector.replies():
        listener.receive(bytes([byte]))
    for byte in listener.replies():
        connector.receive(bytes([byte]))
    got = [message for byte in connector.message("whole") for message in listener.receive(bytes([byte]))]
    assert got == ["whole"]


def test_a_connector_with_another_key_is_refused() -> None:
    listener, connector = ListeningEnd(KEY), ConnectingEnd(os.urandom(32), 1)
    connector.receive(listener.replies())
    with pytest.raises(ChannelError, match="secret"):
        listener.receive(connector.replies())
    assert not listener.proven
    assert listener.replies() == b""


def test_a_listener_with_another_key_is_refused() -> None:
    listener, connector = ListeningEnd(os.urandom(32)), ConnectingEnd(KEY, 1)
    connector.receive(listener.replies())
    connector.replies()
    with pytest.raises(ChannelError, match="secret"):
        connector.receive(os.urandom(32))
    assert not connector.proven


def test_a_connector_cannot_claim_another_node_rank() -> None:
    listener, connector = ListeningEnd(KEY), ConnectingEnd(KEY, 1)
    connector.receive(listener.replies())
    hello = bytearray(connector.replies())
    place = hello.index(b"\n") + 1
    hello[place : place + 4] = struct.pack(">I", 2)
    with pytest.raises(ChannelError):
        listener.receive(bytes(hello))


def test_a_handshake_cannot_be_replayed() -> None:
    listener, connector = ListeningEnd(KEY), ConnectingEnd(KEY, 1)
    connector.receive(listener.replies())
    hello = connector.replies()
    listener.receive(hello)
    another = ListeningEnd(KEY)
    with pytest.raises(ChannelError):
        another.receive(hello)


def test_a_message_cannot_be_replayed_reordered_or_reflected() -> None:
    listener, connector = proven()
    first, second = connector.message(1), connector.message(2)
    with pytest.raises(ChannelError, match="repeated"):
        listener.receive(second)
    listener, connector = proven()
    first = connector.message(1)
    listener.receive(first)
    with pytest.raises(ChannelError):
        listener.receive(first)
    listener, connector = proven()
    with pytest.raises(ChannelError):
        connector.receive(connector.message(1))


@pytest.mark.parametrize("position", [4, 20, 36, 40])
def test_a_changed_message_is_refused(position: int) -> None:
    listener, connector = proven()
    data = bytearray(connector.message({"state": "running"}))
    data[position] ^= 1
    with pytest.raises(ChannelError):
        listener.receive(bytes(data))


def test_a_message_of_another_connection_is_refused() -> None:
    listener, _ = proven()
    _, stranger = proven()
    with pytest.raises(ChannelError):
        listener.receive(stranger.message(1))


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00", b"SSH-2.0-x\r\n"]
)
@pytest.mark.parametrize("make", [lambda: ListeningEnd(KEY), lambda: ConnectingEnd(KEY, 1)])
def test_garbage_is_refused_at_its_first_bytes(make: type[Channel], garbage: bytes) -> None:
    end: Channel = make()  # type: ignore[call-arg]
    with pytest.raises(ChannelError):
        end.receive(garbage)


def test_a_claimed_length_is_not_believed() -> None:
    listener, _ = proven()
    with pytest.raises(ChannelError, match="claims"):
        listener.receive(struct.pack(">I", 1 << 31) + b"x" * 64)


def test_nothing_is_said_before_the_other_side_is_proven() -> None:
    with pytest.raises(ChannelError):
        ListeningEnd(KEY).message({"decision": 1})


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as made:
        yield made


def turn(selector: selectors.BaseSelector, seconds: float = 0.0) -> None:
    for key, events in selector.select(seconds):
        key.data(events)


def test_a_slow_peer_blocks_nobody_and_what_waits_for_it_is_counted(selector: selectors.BaseSelector) -> None:
    ours, theirs = socket.socketpair()
    closed: list[str] = []
    connection = Connection(selector, ours, lambda _data: None, closed.append)
    at = time.monotonic()
    for _ in range(50):
        connection.send(b"x" * 100_000)
    assert time.monotonic() - at < 1
    assert connection.pending > 0
    got = 0
    theirs.settimeout(2)
    while got < 5_000_000:
        got += len(theirs.recv(1 << 20))
        turn(selector)
    assert connection.pending == 0
    theirs.close()
    turn(selector, 1)
    assert closed == ["closed by the other side"]
    assert not connection.is_open


def test_a_connection_may_close_in_the_middle_of_a_send(selector: selectors.BaseSelector) -> None:
    ours, theirs = socket.socketpair()
    closed: list[str] = []
    connection = Connection(selector, ours, lambda _data: None, closed.append)
    theirs.close()
    connection.send(b"x" * 10_000_000)
    turn(selector, 0.1)
    assert len(closed) == 1
    connection.send(b"ignored")
    connection.close()
    assert len(closed) == 1


def test_the_clock_offset_is_that_of_the_shortest_round_trip() -> None:
    clock = ClockOffset()
    assert (clock.offset, clock.error, clock.count) == (0.0, None, 0)
    # Our clock is 2.5 s ahead. One slow way there, one good exchange, one slow way back.
    clock.add(sent=102.5, received_there=100.4, sent_there=100.4, received=102.91)
    clock.add(sent=103.5, received_there=101.001, sent_there=101.002, received=103.503)
    clock.add(sent=104.5, received_there=102.001, sent_there=102.001, received=105.0)
    assert clock.offset == pytest.approx(2.5, abs=0.001)
    assert clock.error is not None
    assert clock.error < 0.002
    # A clock that was set in between shows an impossible round trip.
    clock.add(sent=105.0, received_there=103.0, sent_there=104.0, received=105.1)
    assert clock.count == 3
    # One that was set by a second is noticed by the next exchange, however good the old ones were.
    clock.add(sent=205.5, received_there=202.002, sent_there=202.002, received=205.51)
    assert clock.offset == pytest.approx(3.5, abs=0.01)
