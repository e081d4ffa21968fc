"""Values that are not to be read, rendered or shown: vaults, `!unsafe` text, and secrets by their name."""

from __future__ import annotations

import re
from typing import Any

VAULT_MARK = "$ANSIBLE_VAULT"

_SECRET_NAME = re.compile(r"(^|_)(pass|passwd|password|passphrase|secret|token|api_?key)(_|$)", re.IGNORECASE)


class Vaulted(str):
    """Text that ansible-vault encrypted (the ciphertext). clusterkit does not decrypt."""

    def __repr__(self) -> str:
        return "Vaulted(...)"


class Unsafe(str):
    """Text tagged `!unsafe`: braces in it are no Jinja expression."""


def is_vaulted(raw: Any) -> bool:
    """True for a `!vault` value, and for text that begins as a vault does."""
    return isinstance(raw, Vaulted) or (isinstance(raw, str) and raw.startswith(VAULT_MARK))


def is_secret(name: str) -> bool:
    """True if a variable of that name holds a password, a passphrase, a token or the like."""
    return _SECRET_NAME.search(name) is not None
