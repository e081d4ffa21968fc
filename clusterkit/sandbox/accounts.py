"""The hosts' /etc/passwd, /etc/shadow and /etc/group, made from this machine's texts."""

from __future__ import annotations

import ctypes
import ctypes.util
import secrets
from dataclasses import dataclass

from clusterkit.errors import ClusterkitError
from clusterkit.sandbox.spec import User

# `*`, not `!`: sshd without PAM takes `!` for a locked account and refuses its key.
NO_PASSWORD = "*"
# Bytes of crypt_r's `struct crypt_data`: glibc's own was the largest with 131,232.
_CRYPT_DATA = 1 << 18


@dataclass(frozen=True)
class Account:
    """Who a login is, and where its home is."""

    name: str
    uid: int
    gid: int
    home: str


ROOT = Account("root", 0, 0, "/root")


def account_of(user: User | None, passwd: str) -> Account:
    """Root, or the user; its number is the one it has on this machine, else the first free one from 1000."""
    if user is None or user.name == "root":
        return ROOT
    entries = [line.split(":") for line in passwd.splitlines() if line.count(":") == 6]
    for entry in entries:
        if entry[0] == user.name:
            return Account(user.name, int(entry[2]), int(entry[3]), f"/home/{user.name}")
    used = {int(number) for entry in entries for number in entry[2:4]}
    number = next(number for number in range(1000, 60000) if number not in used)
    return Account(user.name, number, number, f"/home/{user.name}")


def with_account(text: str, line: str) -> str:
    """passwd, shadow or group with that line in place of the one for the same name."""
    name = line.partition(":")[0]
    kept = [old for old in text.splitlines() if old.partition(":")[0] != name]
    position = 0 if name == "root" else len(kept)
    return "\n".join([*kept[:position], line, *kept[position:]]) + "\n"


def passwd_line(account: Account, shell: str) -> str:
    """An entry of /etc/passwd."""
    return f"{account.name}:x:{account.uid}:{account.gid}::{account.home}:{shell}"


def shadow_line(name: str, password: str | None) -> str:
    """An entry of /etc/shadow that never expires."""
    return f"{name}:{NO_PASSWORD if password is None else hashed(password)}:19000:0:99999:7:::"


def hashed(password: str) -> str:
    """The password as crypt(3) keeps it (SHA-512). Python's own `crypt` ended with 3.12."""
    library = ctypes.util.find_library("crypt")
    if library is None:
        raise ClusterkitError(
            "libcrypt is not installed, which makes password hashes", "on Debian: apt-get install libcrypt1"
        )
    # crypt_r: hosts are made in threads, and crypt() keeps its answer in one place for all of them.
    crypt = ctypes.CDLL(library).crypt_r
    crypt.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)
    crypt.restype = ctypes.c_char_p
    work = ctypes.create_string_buffer(_CRYPT_DATA)
    found = crypt(password.encode(), f"$6${secrets.token_hex(8)}$".encode(), work)
    return str(found.decode())
