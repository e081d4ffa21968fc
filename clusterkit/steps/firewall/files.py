"""Shell lines that change a file of a firewall in a way that can be taken back byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from clusterkit.probes.firewall.rules import MARK

_NO_LINE_FEED = f"# {MARK}: there was no line feed here"


def write(path: str, text: str) -> list[str]:
    """The file has this text and may be read by everybody, as such files may."""
    return [f"printf '%s\\n' {quote(text)} >{quote(path)}", f"chmod 644 {quote(path)}"]


def append_line(path: str, line: str) -> list[str]:
    """The file ends with this line, unless it has it already."""
    file = quote(path)
    return [
        f"if ! grep -qxF {quote(line)} {file}; then "
        f"if [ -n \"$(tail -c 1 {file})\" ]; then printf '\\n%s\\n' {quote(_NO_LINE_FEED)} >>{file}; fi; "
        f"printf '%s\\n' {quote(line)} >>{file}; fi"
    ]


def remove_line(path: str, line: str) -> list[str]:
    """The file is as it was before `append_line`."""
    file, marked = quote(path), quote(_NO_LINE_FEED)
    return [
        "rest=$(mktemp)",
        f'grep -vxF -e {quote(line)} -e {marked} {file} >"$rest" || :',
        f'if grep -qxF {marked} {file}; then printf %s "$(cat "$rest")" >{file}; '
        f'else cat "$rest" >{file}; fi',
        'rm -f "$rest"',
    ]


def replace_block(path: str, block: Sequence[str]) -> list[str]:
    """The marked lines of the filter table of an `iptables-save` file are these, at its end."""
    program = (
        f'/^:{MARK} / || /--comment "?{MARK}/ {{ next }} '
        '/^[*]/ { inside = ($0 == "*filter") } '
        'inside && $0 == "COMMIT" && ENVIRON["block"] != "" { print ENVIRON["block"] } '
        "{ print }"
    )
    file = quote(path)
    return [
        "new=$(mktemp)",
        f'block={quote(chr(10).join(block))} awk {quote(program)} {file} >"$new"',
        f'if ! cmp -s "$new" {file}; then cat "$new" >{file}; fi',
        'rm -f "$new"',
    ]
