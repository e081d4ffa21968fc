"""Throw-away login users: each with its shell, its password and its part in sudo."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PASSWORD = "correct horse 'battery' $taple"


@dataclass(frozen=True)
class Account:
    """A user of this machine, for the length of the tests."""

    name: str
    home: Path


class Accounts:
    """Makes users and removes them again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Account] = {}
        self._sudoers = Path(f"/etc/sudoers.d/clusterkit-test-{os.getpid()}")

    def user(
        self, purpose: str, shell: str = "/bin/sh", *, password: bool = False, sudo: str = ""
    ) -> Account:
        """The user of that purpose; `sudo` is what sudoers says after `NAME ALL=`."""
        if purpose in self._made:
            return self._made[purpose]
        account = Account(f"ck{os.getpid()}{purpose}", self._folder / purpose)
        hashed = (
            subprocess.run(
                ["openssl", "passwd", "-6", "-stdin"],
                input=PASSWORD,
                text=True,
                capture_output=True,
                check=True,
            )
            if password
            else None
        )
        subprocess.run(
            [
                "useradd",
                # Numbers that no user of a sandbox host has: `remove` kills by number, in every namespace.
                *("-K", "UID_MIN=60000", "-K", "UID_MAX=60999"),
                "-M",
                "-d",
                account.home,
                "-s",
                shell,
                "-p",
                hashed.stdout.strip() if hashed else "*",
                account.name,
            ],
            check=True,
        )
        account.home.mkdir()
        shutil.chown(account.home, account.name)
        self._made[purpose] = account
        if sudo:
            self.sudoers(f"{account.name} ALL={sudo}")
        return account

    def sudoers(self, line: str) -> None:
        """One more line of sudoers."""
        before = self._sudoers.read_text() if self._sudoers.exists() else ""
        self._sudoers.write_text(f"{before}{line}\n")
        self._sudoers.chmod(0o440)

    def remove(self) -> None:
        """Every user and rule that was made."""
        self._sudoers.unlink(missing_ok=True)
        for account in self._made.values():
            subprocess.run(["pkill", "-KILL", "-u", account.name], check=False)
            subprocess.run(["userdel", account.name], check=False, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def made(folder: Path) -> Iterator[Accounts]:
    """Accounts for the length of a block."""
    accounts = Accounts(folder)
    try:
        yield accounts
    finally:
        accounts.remove()
