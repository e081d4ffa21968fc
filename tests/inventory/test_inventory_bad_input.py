"""Bad input: file, line, and what was meant; nothing is half-read."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.errors import ExitCode, InventoryError, NotFound
from clusterkit.inventory import load

SECTION = "write [GROUP], [GROUP:children] or [GROUP:vars], without spaces"
COMMENT = f"{SECTION}; a comment begins with #"
INI = "write its hosts in Ansible's INI format: [GROUP], then one host a line (docs/inventory.md)"
LOOP = "a group cannot contain itself, directly or through others: take this line out"
RANGE = "for example [01:16], [a:d] or [0:10:2]"
ENDS = "for example [01:16] or [a:d]"
NAME = "host names have letters, digits, dots and hyphens; or use ansible_host= and ansible_port="
PORT = "a port is a number; IPv6 with a port is [2001:db8::1]:22"
QUOTES = "put quotes around a value with spaces, and # before a comment"

# text, line of the error, message, hint
CASES = [
    ("[my group]\nh1\n", 1, "'[my group]' is not a section", SECTION),
    ("\n# c\n[ nodes ]\nh1\n", 3, "'[ nodes ]' is not a section", SECTION),
    ("[]\nh1\n", 1, "'[]' is not a section", SECTION),
    ("[nodes\nh1\n", 1, "'[nodes' begins like a section but does not end in ']'", COMMENT),
    ("[nodes] ; t\nh1\n", 1, "'[nodes] ; t' begins like a section but does not end in ']'", COMMENT),
    ("[a:var]\nx=1\n", 1, "[a:var]: there is no section type 'var'", "the types are :children and :vars"),
    (
        "[trainers]\nh1\n[trainer:vars]\nx=1\n",
        3,
        "[trainer:vars] gives variables to group 'trainer', which has no section of its own",
        "did you mean trainers?",
    ),
    (
        "h1\n[zzz:vars]\nx=1\n",
        2,
        "[zzz:vars] gives variables to group 'zzz', which has no section of its own",
        "add a section [zzz]",
    ),
    (
        "[gpus]\nh1\n[top:children]\ngpu\n",
        4,
        "[top:children] names group 'gpu', which has no section of its own",
        "did you mean gpus?",
    ),
    ("[g]\nh1\n[top:children]\nh1\n", 4, "[top:children] names 'h1', which is a host", "put it under [top]"),
    (
        "[g]\nh1\n[top:children]\ng x=1\n",
        4,
        "expected the name of a group in [top:children], found 'g x=1'",
        "one group a line; hosts and variables belong in other sections",
    ),
    ("[a:children]\na\n", 2, "group 'a' cannot be its own child", LOOP),
    (
        "[a:children]\nb\n[b:children]\nc\n[c:children]\na\n",
        6,
        "group 'a' already contains 'c', so it cannot be a child of it",
        LOOP,
    ),
    ("[a:children]\nall\n", 2, "'all' holds every group, so it cannot be the child of one", LOOP),
    ("[a]\nh1 ansible_user\n", 2, "expected NAME=VALUE after the host name, found 'ansible_user'", QUOTES),
    (
        "[a]\nh1 ansible_user = me\n",
        2,
        "expected NAME=VALUE after the host name, found 'ansible_user'",
        "take out the spaces around '='",
    ),
    (
        "[a]\nh1 ; comment\n",
        2,
        "expected NAME=VALUE after the host name, found ';'",
        "a comment behind a host begins with #",
    ),
    ("[a]\nh1 x=it's\n", 2, "a quote is opened and not closed", "put values with spaces or # between quotes"),
    (
        "[a]\nh1 =x\n",
        2,
        "there is no name before '='",
        "write NAME=VALUE, on a host line without spaces around '='",
    ),
    ("[a]\nh1\n[a:vars]\nh2\n", 4, "expected NAME=VALUE in [a:vars], found 'h2'", "a host belongs under [a]"),
    (
        "[a]\nh1\n[a:vars]\nx: 1\n",
        4,
        "expected NAME=VALUE in [a:vars], found 'x: 1'",
        "write NAME=VALUE, not NAME: VALUE",
    ),
    (
        "[a]\nh1\n[a:vars]\nansible_group_priority=high\n",
        4,
        "ansible_group_priority is 'high', but it has to be a whole number",
        "for example 10: the higher wins",
    ),
    ("gpu[01-16]\n", 1, "range [01-16] is not [FIRST:LAST] or [FIRST:LAST:STEP]", "write [01:16]"),
    (
        "gpu[1,3]\n",
        1,
        "range [1,3] is not [FIRST:LAST] or [FIRST:LAST:STEP]",
        "a list is not a range: write one host line for each",
    ),
    ("gpu[5]\n", 1, "range [5] is not [FIRST:LAST] or [FIRST:LAST:STEP]", RANGE),
    ("gpu[1:2:3:4]\n", 1, "range [1:2:3:4] is not [FIRST:LAST] or [FIRST:LAST:STEP]", RANGE),
    (
        "gpu[01:100]\n",
        1,
        "range [01:100]: '01' has leading zeros, so both ends need the same number of digits",
        "write [001:100]",
    ),
    (
        "gpu[001:16]\n",
        1,
        "range [001:16]: '001' has leading zeros, so both ends need the same number of digits",
        "write [001:016]",
    ),
    ("gpu[16:1]\n", 1, "range [16:1] begins after its end", "write the smaller end first"),
    ("gpu[d:a]\n", 1, "range [d:a] begins after its end", "write the smaller end first"),
    ("gpu[aa:zz]\n", 1, "range [aa:zz]: the ends are numbers or single letters", ENDS),
    ("gpu[1:c]\n", 1, "range [1:c]: the ends are numbers or single letters", ENDS),
    ("gpu[1:]\n", 1, "range [1:] has no last value", "write [FIRST:LAST], both ends are included"),
    ("g[1:5:0]\n", 1, "range [1:5:0]: the step '0' is not a number above 0", "for example [0:10:2]"),
    ("g[1:5:-1]\n", 1, "range [1:5:-1]: the step '-1' is not a number above 0", "for example [0:10:2]"),
    ("gpu[01:16\n", 1, "'gpu[01:16' has a bracket without its partner", "a range is written [01:16]"),
    (
        "g[1:99999999]\n",
        1,
        "range [1:99999999] stands for more than 65536 hosts",
        "check the ends of the range",
    ),
    (
        "g[1:300]h[1:300]\n",
        1,
        "'g[1:300]h[1:300]' stands for more than 65536 hosts",
        "check the ends of the range",
    ),
    ("gpu01:ssh\n", 1, "'gpu01:ssh': 'ssh' is not a port", PORT),
    ("[a]\ngpu01:\n", 2, "'gpu01:' ends in a colon with no port behind it", "write NAME or NAME:PORT"),
    (
        "gpu01:99999\n",
        1,
        "'gpu01:99999': port 99999 is not between 1 and 65535",
        "ssh listens on 22 unless set otherwise",
    ),
    (":22\n", 1, "':22' has no host name before the port", "write NAME:PORT"),
    ("foo/bar:22\n", 1, "'foo/bar' is not a host name, so ':22' behind it is not its port", NAME),
    (
        "ssh://gpu01:22\n",
        1,
        "'ssh://gpu01:22' is a URL, and a host line begins with a plain name",
        "write NAME or NAME:PORT",
    ),
    ('"" x=1\n', 1, "a host name is empty", "a line begins with the host's name, then NAME=VALUE"),
    ("---\nall:\n  hosts:\n", 1, "this is a YAML inventory, and clusterkit reads INI only", INI),
    ("# c\n\nall:\n  hosts:\n", 3, "this is a YAML inventory, and clusterkit reads INI only", INI),
    ("plugin: aws_ec2\n", 1, "this is a YAML inventory, and clusterkit reads INI only", INI),
    ('{"all": {}}', 1, "this is a JSON inventory, and clusterkit reads INI only", INI),
    ("h1\n---\n", 2, "'---' begins a YAML file", "clusterkit reads inventories in Ansible's INI format"),
]


@pytest.mark.parametrize(("text", "line", "message", "hint"), CASES, ids=[case[2][:40] for case in CASES])
def test_a_bad_line_is_named_with_what_was_meant(
    tmp_path: Path, text: str, line: int, message: str, hint: str
) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text(text)
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert caught.value.message == f"{path}:{line}: {message}"
    assert caught.value.hint == hint
    assert (caught.value.path, caught.value.line) == (path, line)
    assert caught.value.exit_code == ExitCode.USAGE


def test_only_the_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "inventory.ini"
    path.write_bytes(b"# caf\xe9 is fine in a comment\n[a]\nh\xe9\n")
    with pytest.raises(InventoryError, match=r"inventory\.ini:3: this line is not UTF-8 text"):
        load(path)


@pytest.mark.parametrize(
    "line", ["h1 ansible_password=my secretword", "h1 x=1 WANDB_API_KEY=secretword secretword"]
)
def test_no_part_of_a_secret_is_in_the_message(tmp_path: Path, line: str) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text(f"[a]\n{line}\n")
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert "secretword" not in caught.value.message + caught.value.hint
    path.write_text("[a]\nh1\n[a:vars]\nansible_password: secretword\n")
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert "secretword" not in caught.value.message + caught.value.hint


def test_other_kinds_of_inventory_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="this is a directory, and clusterkit reads one inventory file"):
        load(tmp_path)
    program = tmp_path / "dynamic.py"
    program.write_text("#!/usr/bin/env python3\nprint('{}')\n")
    with pytest.raises(InventoryError, match=r"this is a program \(a dynamic inventory\)") as caught:
        load(program)
    assert f"`ansible-inventory -i {program} --list`" in caught.value.hint
    toml = tmp_path / "inventory.toml"
    toml.write_text("[a.hosts]\n")
    with pytest.raises(InventoryError, match="this is a TOML file, not an INI inventory"):
        load(toml)
    with pytest.raises(NotFound, match="there is no such inventory file"):
        load(tmp_path / "missing.ini")


def test_an_ini_inventory_may_be_executable_and_end_in_yml(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("﻿[a]\nh1\n", "utf-8")
    path.chmod(0o755)
    assert list(load(path).hosts) == ["h1"]


# Files under group_vars: text, message (after the path)
YAML_CASES = [
    ("x: [1, 2\ny: 3\n", ":2: not valid YAML: expected ',' or ']', but got ':'"),
    ("a: 1\n\tb: 2\n", ":2: not valid YAML: found character '\\t' that cannot start any token"),
    ("- a\n- b\n", ":1: expected variables, one `NAME: VALUE` a line"),
    ("just text\n", ":1: expected variables, one `NAME: VALUE` a line"),
    ("a: 1\n---\nb: 2\n", ":2: not valid YAML: but found another document"),
    ("x: 1\ny: !mine 5\n", ":2: not valid YAML: could not determine a constructor for the tag '!mine'"),
    ("d: 2024-13-45\n", ": not valid YAML: month must be in 1..12"),
    ('{"a": 1,, "b": 2}', ":1: not valid YAML: expected the node content, but found ','"),
]


@pytest.mark.parametrize(("text", "message"), YAML_CASES)
def test_a_bad_variables_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text("[a]\nh1\n")
    file = tmp_path / "group_vars" / "a.yml"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert caught.value.message == f"{file}{message}"


def test_warnings_of_what_is_read_but_probably_not_meant(tmp_path: Path) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text("[trainers]\nh1\nh2:2222\n[b]\nh1:22\nh2:2222\nb\n")
    variables = tmp_path / "group_vars"
    variables.mkdir()
    (variables / "trainer.yml").write_text("x: 1\n")
    (variables / "elsewhere.yml").write_text("x: 1\n")
    (variables / "b.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6231\n")
    (variables / "all.yml").write_text("x: 1\ny: 1\nx: 2\n")
    assert load(path).warnings == (
        f"{path}:5: port 22 of h1 is ignored, as Ansible does, because line 2 already named this host; "
        "give the alias another name",
        f"{variables}/trainer.yml: no group or host is called trainer; did you mean trainers?",
        f"{variables}/all.yml:3: x was already set on line 1; the last one wins",
        f"{variables}/b.yml: encrypted with ansible-vault as a whole, so clusterkit sees none of its "
        "variables",
        f"{path}: 'b' names both a host and a group, which Ansible mixes up: rename one",
    )


def test_every_value_knows_where_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text("[a]\nh1 x=1\n\n[a:vars]\ny=2\n")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "h1.json").write_text('{\n  "z": 3\n}\n')
    variables = load(path).hosts["h1"].variables
    assert {name: str(value.source) for name, value in variables.items()} == {
        "x": f"{path}:2",
        "y": f"{path}:5",
        "z": f"{tmp_path}/host_vars/h1.json:2",
    }
