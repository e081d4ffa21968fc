"""Private keys from files: read once for all hosts, a passphrase asked for once, whatever the format."""

from __future__ import annotations

import base64
import io
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from clusterkit.remote.secrets import AskedOnce

_TRIES = 3
_CLASSES: tuple[tuple[type, type[paramiko.PKey]], ...] = (
    (Ed25519PrivateKey, paramiko.Ed25519Key),
    (EllipticCurvePrivateKey, paramiko.ECDSAKey),
    (RSAPrivateKey, paramiko.RSAKey),
)


class Unusable(Exception):
    """A key file that cannot be used; the text says why, for the account of what was tried."""


@dataclass(frozen=True)
class KeyFile:
    """An identity file as it lies there: is it locked, and which public key belongs to it (None: unknown)."""

    path: Path
    locked: bool
    public: bytes | None


class KeyRing:
    """Key files of all hosts. Safe to use from all workers: who comes first reads a file, or asks for it."""

    def __init__(self, asked: AskedOnce) -> None:
        self._asked = asked
        self._lock = threading.Lock()
        self._loading: dict[Path, threading.Lock] = {}
        self._loaded: dict[Path, paramiko.PKey | Unusable] = {}

    def look(self, path: Path) -> KeyFile | None:
        """What kind of file this is, without unlocking it; None if there is none that can be read."""
        try:
            text = path.read_bytes()
        except OSError:
            return None
        return KeyFile(path, _is_locked(text), _public_part(path, text))

    def load(self, path: Path, *, ask: bool) -> paramiko.PKey:
        """The private key in `path`. Raises Unusable; a file that failed is not read or asked for again."""
        with self._lock:
            lock = self._loading.setdefault(path, threading.Lock())
        with lock:
            if path not in self._loaded:
                try:
                    self._loaded[path] = self._read(path, ask)
                except Unusable as problem:
                    self._loaded[path] = problem
            found = self._loaded[path]
        if isinstance(found, Unusable):
            raise found
        return found

    def _read(self, path: Path, ask: bool) -> paramiko.PKey:
        text = path.read_bytes()
        if not _is_locked(text):
            return _private_key(path, text, None)
        if not ask or not self._asked.possible:
            raise Unusable(f"{path} has a passphrase and nobody can be asked for it")
        for attempt in range(_TRIES):
            question = f"Passphrase for {path}" + (
                f" (wrong, try {attempt + 1} of {_TRIES})" if attempt else ""
            )
            passphrase = self._asked.ask(question)
            if not passphrase:
                break
            key = _unlocked(path, text, passphrase.reveal())
            if key is not None:
                return key
        raise Unusable(f"{path}: the passphrase was wrong")


def with_certificate(key: paramiko.PKey, certificate: Path) -> paramiko.PKey | None:
    """A copy of `key` that shows the certificate; None if that is for another key, or unreadable."""
    found = object.__new__(type(key))  # `copy` cannot: an agent's key looks up every attribute in itself
    found.__dict__.update(key.__dict__)
    try:
        found.load_certificate(str(certificate))
    except Exception:  # of many kinds: it is then not used
        return None
    blob = found.public_blob.key_blob if found.public_blob else b""
    return found if _certified(blob) == bytes(key.asbytes()) else None


def _certified(certificate: bytes) -> bytes | None:
    kind = certificate[4 : 4 + int.from_bytes(certificate[:4], "big")]
    try:
        parsed: Any = serialization.load_ssh_public_identity(kind + b" " + base64.b64encode(certificate))
        text: bytes = parsed.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
    except Exception:  # cryptography's own kinds, and ValueError
        return None
    return base64.b64decode(text.split()[1])


def _is_locked(text: bytes) -> bool:
    if b"BEGIN OPENSSH PRIVATE KEY" in text:
        return _cipher(text) not in (b"none", b"")
    return b"ENCRYPTED" in text


def _cipher(text: bytes) -> bytes:
    """The cipher's name in an OpenSSH key file: after the magic, a length and the name."""
    data = _openssh_data(text)
    length = int.from_bytes(data[15:19], "big")
    return data[19 : 19 + length]


def _openssh_data(text: bytes) -> bytes:
    lines = [line for line in text.splitlines() if line and not line.startswith(b"-----")]
    try:
        return base64.b64decode(b"".join(lines))
    except ValueError:
        return b""


def _public_part(path: Path, text: bytes) -> bytes | None:
    """The public key: of the file itself (OpenSSH's format keeps it in the clear), or of `path.pub`."""
    if b"BEGIN OPENSSH PRIVATE KEY" in text:
        data, at = _openssh_data(text), 15
        for _ in range(3):  # cipher, key derivation, its options
            at += 4 + int.from_bytes(data[at : at + 4], "big")
        at += 4  # the number of keys
        length = int.from_bytes(data[at : at + 4], "big")
        return data[at + 4 : at + 4 + length] or None
    if b"PRIVATE KEY" not in text:
        return _public_line(text)
    try:
        return _public_line(path.with_name(path.name + ".pub").read_bytes())
    except OSError:
        return None


def _public_line(text: bytes) -> bytes | None:
    fields = text.split()
    try:
        return base64.b64decode(fields[1]) if len(fields) >= 2 else None
    except ValueError:
        return None


def _unlocked(path: Path, text: bytes, passphrase: str) -> paramiko.PKey | None:
    try:
        return _private_key(path, text, passphrase.encode())
    except _WrongPassphrase:
        return None


class _WrongPassphrase(Exception):
    pass


def _private_key(path: Path, text: bytes, passphrase: bytes | None) -> paramiko.PKey:
    """Through `cryptography`, which reads every format and cipher; Paramiko's own reader knows fewer."""
    load: Any = (
        serialization.load_ssh_private_key
        if b"BEGIN OPENSSH PRIVATE KEY" in text
        else serialization.load_pem_private_key
    )
    try:
        found = load(text, passphrase)
    except ValueError as error:
        if passphrase is not None:
            raise _WrongPassphrase from error
        raise Unusable(f"{path} is not a private key that can be read") from error
    except Exception as error:  # an unsupported kind: DSA, a hardware key without its agent
        raise Unusable(f"{path}: {error}") from error
    for kind, paramiko_class in _CLASSES:
        if isinstance(found, kind):
            plain = found.private_bytes(  # type: ignore[attr-defined]
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            )
            return paramiko_class.from_private_key(io.StringIO(plain.decode()))
    raise Unusable(f"{path}: keys of this kind are no longer supported")
