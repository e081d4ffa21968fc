"""A value's text as Ansible understands it: quotes are taken off, nothing else is changed."""

from __future__ import annotations

import ast
import warnings


def unquoted(text: str) -> str:
    """The text that Ansible would show for a value written as `text` in an INI inventory.

    Ansible reads a value as a Python literal if it is one. A quoted string loses its quotes; another
    literal stays as it was written, without a comment behind it; anything else stays as it is.
    """
    source = text.lstrip(" \t")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, mode="eval")
            value = ast.literal_eval(tree)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    written = source.encode()[tree.body.col_offset : tree.body.end_col_offset]
    return written.decode()
