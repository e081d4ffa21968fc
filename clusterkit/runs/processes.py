"""The processes of a run in one number each: a trainer is its global rank, server N is -1-N.

Servers of parameter-server mode have numbers of their own, from 0 on as ranks have; both have logs.
"""

from __future__ import annotations

_SERVER = "server-"


def server(number: int) -> int:
    """The server of this number."""
    return -1 - number


def server_number(process: int) -> int | None:
    """The server's number; None for a trainer."""
    return -1 - process if process < 0 else None


def log_name(process: int) -> str:
    """What the agent calls the process's log: `3`, `server-0`."""
    return f"{_SERVER}{-1 - process}" if process < 0 else str(process)


def of_log(name: str) -> int | None:
    """The process that a log of this name belongs to; None for the launcher's."""
    digits = name.removeprefix(_SERVER)
    if not digits.isdecimal():
        return None
    return int(digits) if digits == name else server(int(digits))


def words(process: int) -> str:
    """`rank 3`, `server 0`."""
    return f"server {-1 - process}" if process < 0 else f"rank {process}"


def keys(process: int) -> dict[str, int]:
    """How JSON names the process: `{"rank": 3}`, `{"server": 0}`."""
    return {"server": -1 - process} if process < 0 else {"rank": process}
