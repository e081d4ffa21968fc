"""Hosts on a training network, as the judges see them."""

from __future__ import annotations

from clusterkit.between.peers import Peer


def peer(number: int, mtu: int = 1500, speed: int | None = None) -> Peer:
    """`gpu01` has 10.0.0.1."""
    return Peer(f"gpu{number:02d}", f"10.0.0.{number}", "eth0", mtu, speed, "python3")
