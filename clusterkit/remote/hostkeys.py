"""Whether a host key is the right one: known, new, changed, revoked, or signed by a certificate authority."""

from __future__ import annotations

import fnmatch
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import paramiko
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from clusterkit.errors import Unreachable
from clusterkit.remote.endpoint import Endpoint
from clusterkit.remote.knownhosts import KnownHosts, KnownKey, RecordedKey, fingerprint

_ALGORITHMS = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}
_CERTIFICATE = "-cert-v01@openssh.com"


class HostKeyCheck(paramiko.MissingHostKeyPolicy):
    """Decides about one endpoint's key. Paramiko knows no hosts itself, and so asks it about every key."""

    def __init__(
        self,
        endpoint: Endpoint,
        known_hosts: KnownHosts,
        recorded: Callable[[RecordedKey], None],
        warn: Callable[[str], None],
    ) -> None:
        self._endpoint = endpoint
        self._files = known_hosts
        self._recorded = recorded
        self._warn = warn
        # OpenSSH's rule for StrictHostKeyChecking=no: go on, but give no secret to what may be another host.
        self.changed = False
        paths = (*endpoint.known_hosts, *endpoint.global_known_hosts)
        self._known = known_hosts.about(endpoint.host_key_name, paths)
        # A port of its own may share the machine's key: a plain entry counts if it matches, as in OpenSSH.
        plain = endpoint.address.lower()
        other_port = endpoint.host_key_name != plain and not endpoint.host_key_alias
        self._plain = known_hosts.about(plain, paths) if other_port else []

    def algorithms(self) -> tuple[str, ...]:
        """Host key algorithms in the order to ask for: those whose key can be checked come first."""
        kinds = [key.kind for key in (*self._known, *self._plain) if not key.marker]
        ordered = dict.fromkeys([*(kind for kind in kinds if kind in _ALGORITHMS), *_ALGORITHMS])
        plain = tuple(algorithm for kind in ordered for algorithm in _ALGORITHMS[kind])
        if not any(key.marker == "@cert-authority" for key in (*self._known, *self._plain)):
            return plain
        return tuple(algorithm + _CERTIFICATE for algorithm in plain) + plain

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Accept the key, or raise Unreachable (stage `host key`)."""
        blob = _plain_blob(key)
        self._refuse_revoked(blob)
        certificate = key.public_blob.key_blob if key.public_blob else None
        if certificate and self._vouched_for(certificate):
            return
        ours = [known for known in self._known if not known.marker]
        matching = [known for known in (*ours, *self._plain) if not known.marker and known.blob == blob]
        if matching:
            return
        if ours:
            self._changed(key.get_name(), blob, ours)
        else:
            self._new(key.get_name(), blob)

    def _refuse_revoked(self, blob: bytes) -> None:
        for known in (*self._known, *self._plain):
            if known.marker == "@revoked" and known.blob == blob:
                raise self._refused(
                    f"its host key {fingerprint(blob)} is marked @revoked in {known.path}:{known.line}",
                    "do not connect: this key was stolen or withdrawn; ask the machine's owner for a new one",
                )

    def _vouched_for(self, certificate: bytes) -> bool:
        """True if an authority in known_hosts signed the certificate; with a bad one the plain key counts."""
        for known in (*self._known, *self._plain):
            if known.marker == "@cert-authority":
                problem = _certificate_problem(certificate, known, self._endpoint, time.time())
                if problem is None:
                    self._refuse_revoked(known.blob)
                    return True
                if problem:
                    self._warn(f"{self._endpoint.named}: its host certificate is not accepted: {problem}")
        return False

    def _changed(self, kind: str, blob: bytes, ours: Sequence[KnownKey]) -> None:
        old = next((known for known in ours if known.kind == kind), ours[0])
        clear = f"ssh-keygen -R {shlex.quote(self._endpoint.host_key_name)} -f {shlex.quote(str(old.path))}"
        message = (
            f"the host key has changed: {old.path}:{old.line} has {old.fingerprint} ({old.kind}), "
            f"the host shows {fingerprint(blob)} ({kind})"
        )
        if self._endpoint.host_key_rule == "off":
            self.changed = True
            self._warn(
                f"{self._endpoint.named}: {message}; StrictHostKeyChecking=no goes on without passwords"
            )
            return
        raise self._refused(
            message, f"if the machine was reinstalled: {clear}; if not, somebody may be in between"
        )

    def _new(self, kind: str, blob: bytes) -> None:
        name, shown = self._endpoint.host_key_name, fingerprint(blob)
        if self._endpoint.host_key_rule == "strict":
            raise self._refused(
                f"the host key {shown} ({kind}) is not in known_hosts, and strict host keys were asked for",
                f"compare it with the machine's own, then: {_scan_command(self._endpoint)}",
            )
        path = self._endpoint.known_hosts[0] if self._endpoint.known_hosts else None
        if path == Path("/dev/null"):
            path = None
        try:
            if path is not None and not self._files.record(
                name, kind, blob, path, hashed=self._endpoint.hash_names
            ):
                return
        except OSError as error:
            self._warn(
                f"{self._endpoint.named}: the host key could not be recorded in {path}: {error.strerror}"
            )
            path = None
        self._recorded(RecordedKey(self._endpoint.label, name, kind, shown, path))

    def _refused(self, message: str, hint: str) -> Unreachable:
        return Unreachable(self._endpoint.label, "host key", f"{self._endpoint.named}: {message}", hint)


def _scan_command(endpoint: Endpoint) -> str:
    path = endpoint.known_hosts[0] if endpoint.known_hosts else Path("~/.ssh/known_hosts")
    return f"ssh-keyscan -p {endpoint.port} {shlex.quote(endpoint.address)} >> {shlex.quote(str(path))}"


def _plain_blob(key: paramiko.PKey) -> bytes:
    """The public key itself, also where the host showed a certificate for it."""
    return bytes(key.asbytes())


def _certificate_problem(
    certificate: bytes, authority: KnownKey, endpoint: Endpoint, now: float
) -> str | None:
    """Why the certificate does not hold; None if it does, "" if this authority did not sign it."""
    parsed = _load(certificate)
    if parsed is None:
        return "it cannot be read"
    if _public_blob(parsed.signature_key()) != authority.blob:
        return ""
    try:
        parsed.verify_cert_signature()
    except InvalidSignature:
        return "its signature is wrong"
    if parsed.type.name != "HOST":
        return "it is a user's certificate"
    if parsed.critical_options:
        return "it has critical options that are not understood"
    if not parsed.valid_after <= now < parsed.valid_before:
        return "it is not valid at this time"
    host = endpoint.host_key_alias or endpoint.address
    principals = [name.decode("utf-8", "replace").lower() for name in parsed.valid_principals]
    if principals and not any(fnmatch.fnmatchcase(host.lower(), name) for name in principals):
        return f"it names {', '.join(principals)}, not {host}"
    return None


def _load(certificate: bytes) -> Any:
    import base64

    kind_length = int.from_bytes(certificate[:4], "big")
    line = certificate[4 : 4 + kind_length] + b" " + base64.b64encode(certificate)
    try:
        return serialization.load_ssh_public_identity(line)
    except Exception:  # of many kinds; none of them makes the key trusted
        return None


def _public_blob(key: Any) -> bytes:
    import base64

    text = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return base64.b64decode(text.split()[1])


class RecordedKeys:
    """The new host keys of this run, in the order in which they came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: list[RecordedKey] = []

    def add(self, key: RecordedKey) -> None:
        """Remember one, once for each name however many aliases lead there."""
        with self._lock:
            if not any(
                (known.name, known.fingerprint) == (key.name, key.fingerprint) for known in self._keys
            ):
                self._keys.append(key)

    def all(self) -> tuple[RecordedKey, ...]:
        """Those so far."""
        with self._lock:
            return tuple(self._keys)
