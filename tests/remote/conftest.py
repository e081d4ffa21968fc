"""A real sshd for these tests, and users to log in as."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.remote import Connections
from tests.remote import accounts as users
from tests.remote.accounts import Accounts
from tests.remote.sshd import SSHD, Sshd, running


@pytest.fixture(scope="session")
def can_serve() -> None:
    """Skips where no sshd can be run for several users."""
    if not sys.platform.startswith("linux"):
        pytest.skip("these tests run a sshd on Linux")
    if os.geteuid() != 0:
        pytest.skip("these tests run a sshd for several users, which needs root")
    if not Path(SSHD).exists():
        pytest.skip("sshd is not installed: apt-get install openssh-server")


@pytest.fixture(scope="session")
def public_folder(can_serve: None) -> Iterator[Path]:
    """A folder that every user may enter: pytest's own are root's alone."""
    folder = Path(tempfile.mkdtemp(prefix="clusterkit-remote-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def accounts(public_folder: Path) -> Iterator[Accounts]:
    """Users of this machine that the tests made."""
    with users.made(public_folder) as made:
        yield made


@pytest.fixture(scope="session")
def server(public_folder: Path, accounts: Accounts) -> Iterator[Sshd]:
    """A sshd on all of 127.0.0.0/8, without limits that a test is not about."""
    plain = accounts.user("plain")
    with running(
        public_folder / "sshd", "MaxStartups 100", "PasswordAuthentication yes", user=plain.name
    ) as found:
        yield found


@pytest.fixture
def folder(public_folder: Path) -> Iterator[Path]:
    """A folder of this test alone, which a sshd may serve from."""
    found = Path(tempfile.mkdtemp(dir=public_folder))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found, ignore_errors=True)


@pytest.fixture
def connections() -> Iterator[Connections]:
    """Connections with the default options."""
    with Connections() as made:
        yield made
