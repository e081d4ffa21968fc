"""Values that travel through unread: what ansible-vault encrypted, and text that is no template."""

from __future__ import annotations

from typing import Any

VAULT_MARK = "$ANSIBLE_VAULT"


class Vaulted(str):
    """Text that ansible-vault encrypted (the ciphertext). clusterkit does not decrypt."""

    def __repr__(self) -> str:
        return "Vaulted(...)"


class Unsafe(str):
    """Text tagged `!unsafe`: braces in it are no Jinja expression."""


def is_vaulted(raw: Any) -> bool:
    """True for a `!vault` value, and for text that begins as a vault does."""
    return isinstance(raw, Vaulted) or (isinstance(raw, str) and raw.startswith(VAULT_MARK))
