"""Which declared options a mount does not have, of those that the kernel shows and that matter (pure)."""

from __future__ import annotations

from collections.abc import Sequence

# Each family: exactly one of them holds. The first is what holds where the kernel shows none of them.
_FAMILIES: tuple[tuple[str, ...], ...] = (
    ("rw", "ro"),
    ("exec", "noexec"),
    ("suid", "nosuid"),
    ("dev", "nodev"),
    ("ac", "noac"),
    ("async", "sync"),
)
# NFS always shows one of these; another file system, and NFS through FUSE, shows none.
_SHOWN_FAMILIES: tuple[tuple[str, ...], ...] = (("hard", "soft", "softerr"),)
_IMPLIED = (_FAMILIES[0], *_SHOWN_FAMILIES)
_SAME_NAME = {"nfsvers": "vers"}
_VALUES = ("vers", "proto", "sec")


def comparable(actual: Sequence[str]) -> list[str]:
    """The options of a mount that should be the same on all hosts, in one order."""
    families = {name for family in (*_FAMILIES, *_SHOWN_FAMILIES) for name in family}
    return sorted({each for each in actual if each in families or each.partition("=")[0] in _VALUES})


def differing(declared: str, actual: Sequence[str]) -> list[tuple[str, str]]:
    """(wanted, what holds instead) for each declared option that does not hold.

    What nobody declares otherwise is `rw`, and `hard` (a soft NFS mount loses writes). Sizes and times are
    left out: client and server agree on them. So is what is for the host's own tools (`_netdev`, `nofail`,
    `bg`, `x-…`). A FUSE program sets nosuid and nodev by itself.
    """
    wanted = [option for option in declared.split(",") if option]
    wanted += [family[0] for family in _IMPLIED if not set(family) & set(wanted)]
    found = [_flag(option, actual) or _value(option, actual) for option in wanted]
    return [(option, other) for option, other in zip(wanted, found, strict=True) if other]


def _flag(option: str, actual: Sequence[str]) -> str:
    for family in _FAMILIES:
        if option in family:
            # Read-only is so if the mount or its file system is.
            holds = next((name for name in family[1:] if name in actual), family[0])
            return "" if holds == option else holds
    for family in _SHOWN_FAMILIES:
        if option in family:
            holds = next((name for name in family if name in actual), option)
            return "" if holds == option else holds
    return ""


def _value(option: str, actual: Sequence[str]) -> str:
    name, _, value = option.partition("=")
    name = _SAME_NAME.get(name, name)
    if name not in _VALUES or not value:
        return ""
    holds = next((each.partition("=")[2] for each in actual if each.startswith(f"{name}=")), "")
    # `vers=4` is met by 4.2.
    met = not holds or holds == value or holds.startswith(f"{value}.")
    return "" if met else f"{name}={holds}"
