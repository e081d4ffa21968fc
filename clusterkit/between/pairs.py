"""Which hosts meet: ordered pairs for connections, rounds of a tournament for measurements (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Pair = tuple[str, str]

# Up to here every ordered pair is tried: 992 of them.
ALL_PAIRS_UP_TO = 32


def ordered_pairs(hosts: Sequence[str], *, every: bool = False) -> tuple[Pair, ...]:
    """Who connects to whom. Up to 32 hosts, or with `every`, each ordered pair of them.

    Beyond, a sample: both directions between the first host (where the job's master runs) and each other,
    and from each host to those 1, 2, 4, 8 … places before and after it. So every host is met in both
    directions by near ones (one switch, as inventories are mostly sorted) and by far ones.
    """
    if every or len(hosts) <= ALL_PAIRS_UP_TO:
        # In the order of distance: nobody is visited by all others in the same moment.
        distances = list(range(1, len(hosts)))
        return tuple(_ring(hosts, distances))
    distances = [1 << power for power in range((len(hosts) // 2).bit_length())]
    pairs = dict.fromkeys(_ring(hosts, [*distances, *(-distance for distance in distances)]))
    for other in hosts[1:]:
        pairs.update(dict.fromkeys([(hosts[0], other), (other, hosts[0])]))
    return tuple(pairs)


def _ring(hosts: Sequence[str], distances: Sequence[int]) -> Iterator[Pair]:
    for distance in distances:
        for at, host in enumerate(hosts):
            yield host, hosts[(at + distance) % len(hosts)]


def rounds(hosts: Sequence[str]) -> list[list[Pair]]:
    """A round-robin tournament: n-1 rounds (n for an odd n), in each of which nobody has two games.

    Every unordered pair meets exactly once (the circle method).
    """
    places: list[str | None] = list(hosts)
    if len(places) % 2:
        places.append(None)
    half = len(places) // 2
    played = []
    for _ in range(len(places) - 1):
        games = zip(places[:half], reversed(places[half:]), strict=True)
        played.append([(one, other) for one, other in games if one is not None and other is not None])
        places = [places[0], places[-1], *places[1:-1]]
    return played if len(hosts) > 1 else []


def disjoint(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The pairs in as few rounds as come easily, in each of which nobody has two games."""
    played: list[list[Pair]] = []
    busy: list[set[str]] = []
    for pair in pairs:
        at = next((number for number, names in enumerate(busy) if not names & set(pair)), len(played))
        if at == len(played):
            played.append([])
            busy.append(set())
        played[at].append(pair)
        busy[at].update(pair)
    return played
