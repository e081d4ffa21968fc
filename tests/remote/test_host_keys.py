"""Host keys against a real sshd, with known_hosts files as people have them."""

from __future__ import annotations

import base64
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import Unreachable
from clusterkit.remote import Connections, ConnectOptions, fan_out
from tests.remote.sshd import Sshd, keygen, running

pytestmark = pytest.mark.hosts


@pytest.fixture
def known(server: Sshd) -> Path:
    """This test's own, empty known_hosts."""
    server.known_hosts.unlink(missing_ok=True)
    return server.known_hosts


def refusal(server: Sshd, options: ConnectOptions | None = None, **changes: Any) -> Unreachable:
    with Connections(options) as connections, pytest.raises(Unreachable) as caught:
        connections.to(server.settings(**changes)).run("true", timeout=10)
    assert caught.value.stage == "host key"
    assert f":{server.port}" in caught.value.message
    return caught.value


def accepted(server: Sshd, options: ConnectOptions | None = None, **changes: Any) -> Connections:
    with Connections(options) as connections:
        assert connections.to(server.settings(**changes)).run("true", timeout=10).ok
    return connections


def fingerprint(server: Sshd, kind: str = "ed25519") -> str:
    shown = subprocess.run(
        ["ssh-keygen", "-lf", server.folder / f"host_{kind}.pub"], capture_output=True, text=True, check=True
    )
    return shown.stdout.split()[1]


def test_a_new_key_is_recorded_once_and_shown(server: Sshd, known: Path) -> None:
    with Connections() as connections:
        remotes = {f"gpu{n}": connections.to(server.settings(f"gpu{n}")) for n in range(6)}
        assert not fan_out(remotes, lambda remote: remote.run("true", timeout=20)).bad
        (recorded,) = connections.recorded_keys
    assert recorded.fingerprint == fingerprint(server)
    assert (recorded.name, recorded.path) == (f"[127.0.0.1]:{server.port}", known)
    assert known.read_text() == server.host_key_line()
    assert known.stat().st_mode & 0o777 == 0o600
    assert accepted(server).recorded_keys == ()


def test_many_new_hosts_lose_no_line(server: Sshd, known: Path) -> None:
    known.write_text("# no newline at the end")
    with Connections() as connections:
        remotes = {f"h{n}": connections.to(server.settings(f"h{n}", f"127.0.1.{n}")) for n in range(1, 25)}
        assert not fan_out(remotes, lambda remote: remote.run("true", timeout=30)).bad
        assert len(connections.recorded_keys) == 24
    lines = known.read_text().splitlines()
    assert lines[0] == "# no newline at the end"
    assert sorted(lines[1:]) == sorted(
        server.host_key_line(f"[127.0.1.{n}]:{server.port}").strip() for n in range(1, 25)
    )


def test_ssh_reads_what_was_recorded(server: Sshd, known: Path) -> None:
    accepted(server, ssh_common_args=server.args("HashKnownHosts=yes"))
    assert known.read_text().startswith("|1|")
    found = subprocess.run(
        ["ssh-keygen", "-F", f"[127.0.0.1]:{server.port}", "-f", known], capture_output=True, check=False
    )
    assert found.returncode == 0
    assert accepted(server, ConnectOptions(strict_host_keys=True)).recorded_keys == ()


def test_a_changed_key_is_refused_with_both_fingerprints_and_the_cure(
    server: Sshd, known: Path, tmp_path: Path
) -> None:
    other = keygen(tmp_path / "other")
    kind, blob = other.with_suffix(".pub").read_text().split()[:2]
    name = f"[127.0.0.1]:{server.port}"
    known.write_text(f"# first\n{name} {kind} {blob}\n")
    error = refusal(server)
    old = subprocess.run(
        ["ssh-keygen", "-lf", other], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert old in error.message
    assert fingerprint(server) in error.message
    assert f"{known}:2" in error.message
    command = f"ssh-keygen -R '{name}' -f {known}"
    assert command in error.hint
    subprocess.run(command, shell=True, check=True, capture_output=True)
    assert accepted(server).recorded_keys


def test_a_known_type_is_asked_for_first(server: Sshd, known: Path) -> None:
    """Paramiko would ask for ed25519, and take the ecdsa line for a changed key."""
    known.write_text(server.host_key_line(kind="ecdsa"))
    assert accepted(server, ConnectOptions(strict_host_keys=True)).recorded_keys == ()
    known.write_text(server.host_key_line(kind="rsa"))
    assert accepted(server, ConnectOptions(strict_host_keys=True)).recorded_keys == ()


def test_a_revoked_key_is_refused_whatever_else_is_there(server: Sshd, known: Path) -> None:
    known.write_text(server.host_key_line() + f"@revoked * {server.host_key_line().split(' ', 1)[1]}")
    error = refusal(server)
    assert "@revoked" in error.message
    assert f"{known}:2" in error.message


def test_strict_refuses_a_new_key_and_says_which(server: Sshd, known: Path) -> None:
    error = refusal(server, ConnectOptions(strict_host_keys=True))
    assert fingerprint(server) in error.message
    assert f"ssh-keyscan -p {server.port}" in error.hint
    refusal(server, ssh_common_args=server.args("StrictHostKeyChecking=yes"))
    assert not known.exists()


def test_patterns_negation_and_a_plain_name(server: Sshd, known: Path) -> None:
    strict = ConnectOptions(strict_host_keys=True)
    known.write_text(server.host_key_line("[127.0.0.*]:*"))
    accepted(server, strict)
    known.write_text(server.host_key_line(f"[127.0.0.*]:*,![127.0.0.1]:{server.port}"))
    refusal(server, strict)
    known.write_text(server.host_key_line("127.0.0.1"))  # OpenSSH takes a key without its port, if it matches
    accepted(server, strict)
    known.write_text(server.host_key_line("node7"))
    accepted(server, strict, ssh_common_args=server.args("HostKeyAlias=node7"))


def test_checking_off_goes_on_but_sends_no_password(server: Sshd, known: Path, tmp_path: Path) -> None:
    from clusterkit.inventory.model import Secret

    other = keygen(tmp_path / "other").with_suffix(".pub").read_text().split()[:2]
    known.write_text(f"[127.0.0.1]:{server.port} {' '.join(other)}\n")
    off = server.args("StrictHostKeyChecking=no")
    assert "has changed" in accepted(server, ssh_common_args=off).warnings[0]
    with Connections() as connections, pytest.raises(Unreachable, match="the host key has changed") as caught:
        connections.to(
            server.settings(
                ssh_common_args=off, private_key_file=str(tmp_path / "none"), password=Secret("x")
            )
        ).run("true", timeout=10)
    assert caught.value.stage == "authentication"
    assert "the password" not in caught.value.message


def test_a_place_that_cannot_be_written_is_a_warning(server: Sshd) -> None:
    args = server.args().replace(str(server.known_hosts), "/proc/known_hosts")
    found = accepted(server, ssh_common_args=args)
    assert found.recorded_keys[0].path is None
    assert "could not be recorded" in found.warnings[0]
    args = server.args().replace(str(server.known_hosts), "/dev/null")
    assert accepted(server, ssh_common_args=args).warnings == ()


@pytest.fixture
def certified(folder: Path) -> Path:
    """A sshd's folder whose host key an authority has signed for 127.0.0.2 and gpu*.example."""
    authority = keygen(folder / "authority")
    keygen(folder / "host_ed25519")
    sign(folder, authority, "127.0.0.2,gpu*.example")
    return folder


def sign(folder: Path, authority: Path, names: str, *options: str) -> None:
    command = ["ssh-keygen", "-q", "-s", str(authority), "-I", "host", "-h", "-n", names, *options]
    subprocess.run([*command, str(folder / "host_ed25519.pub")], check=True)


def test_a_certificate_authority_vouches(certified: Path) -> None:
    strict = ConnectOptions(strict_host_keys=True)
    public = " ".join((certified / "authority.pub").read_text().split()[:2])
    with running(certified, f"HostCertificate {certified}/host_ed25519-cert.pub") as server:
        server.known_hosts.write_text(f"@cert-authority [127.0.0.*]:*,*.example {public}\n")
        accepted(server, strict, address="127.0.0.2")
        accepted(server, strict, ssh_common_args=server.args("HostKeyAlias=gpu01.example"))
        # Signed, but for other names: the plain key counts, and that is unknown.
        refusal(server, strict, address="127.0.0.3")
        with Connections() as connections:
            connections.to(server.settings(address="127.0.0.3")).run("true", timeout=10)
            assert "names 127.0.0.2, gpu*.example" in connections.warnings[0]
        # An authority that was revoked vouches for nobody.
        server.known_hosts.write_text(f"@cert-authority * {public}\n@revoked * {public}\n")
        assert "@revoked" in refusal(server, strict, address="127.0.0.2").message
        # Another authority's name is nothing.
        other = " ".join(keygen(certified / "other").with_suffix(".pub").read_text().split()[:2])
        server.known_hosts.write_text(f"@cert-authority * {other}\n")
        refusal(server, strict, address="127.0.0.2")


@pytest.mark.parametrize(
    ("names", "options", "why"),
    [
        ("127.0.0.2", ("-V", "20200101:20200102"), "not valid at this time"),
        ("127.0.0.9", (), "names 127.0.0.9"),
    ],
)
def test_a_certificate_that_does_not_hold(
    certified: Path, names: str, options: tuple[str, ...], why: str
) -> None:
    sign(certified, certified / "authority", names, *options)
    public = " ".join((certified / "authority.pub").read_text().split()[:2])
    with running(certified, f"HostCertificate {certified}/host_ed25519-cert.pub") as server:
        server.known_hosts.write_text(f"@cert-authority * {public}\n")
        with Connections() as connections:
            connections.to(server.settings(address="127.0.0.2")).run("true", timeout=10)
            assert why in connections.warnings[0]
            assert connections.recorded_keys  # then it is as good as any unknown key


@pytest.mark.parametrize(
    ("options", "change", "why"),
    [
        (("-h",), 0, None),
        (("-h",), 1, "its signature is wrong"),
        ((), 0, "a user's certificate"),
        (("-h", "-O", "critical:new@example=1"), 0, "critical options"),
    ],
)
def test_what_a_certificate_has_to_be(
    tmp_path: Path, options: tuple[str, ...], change: int, why: str | None
) -> None:
    from clusterkit.remote.endpoint import Endpoint
    from clusterkit.remote.hostkeys import _certificate_problem
    from clusterkit.remote.knownhosts import KnownKey

    authority = keygen(tmp_path / "authority")
    keygen(tmp_path / "host_ed25519")
    command = ["ssh-keygen", "-q", "-s", str(authority), "-I", "x", "-n", "gpu01", *options]
    subprocess.run([*command, str(tmp_path / "host_ed25519.pub")], check=True)
    certificate = bytearray(_blob(tmp_path / "host_ed25519-cert.pub"))
    certificate[-1] ^= change
    known = KnownKey("@cert-authority", "ssh-ed25519", _blob(tmp_path / "authority.pub"), tmp_path, 1)
    problem = _certificate_problem(bytes(certificate), known, Endpoint("a", "gpu01", 22, "u"), time.time())
    assert problem == why or (why is not None and problem is not None and why in problem)
    assert _certificate_problem(b"nonsense", known, Endpoint("a", "gpu01", 22, "u"), 0) == "it cannot be read"


def _blob(public: Path) -> bytes:
    return base64.b64decode(public.read_text().split()[1])


def test_a_host_that_was_reinstalled_on_a_standard_name(server: Sshd, known: Path) -> None:
    """The cure for port 22 has no brackets, and a blank in the path is quoted."""
    from clusterkit.remote.endpoint import Endpoint

    assert Endpoint("a", "GPU01", 22, "u").host_key_name == "gpu01"
    folder = known.parent / "a folder"
    folder.mkdir(exist_ok=True)
    line = server.host_key_line(kind="rsa").replace("ssh-rsa", "ssh-ed25519")
    (folder / "known").write_text(line)
    args = server.args().replace(f"UserKnownHostsFile={known}", f"'UserKnownHostsFile=\"{folder}/known\"'")
    assert f"-f '{folder}/known'" in refusal(server, ssh_common_args=args).hint
    shutil.rmtree(folder)
