"""Templates: where they are found, what quoting does, and what a mistake in one is told."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clusterkit.errors import TemplateError
from clusterkit.planning import templating

VALUES: dict[str, object] = {
    "run_id": "r1",
    "alias": "gpu01",
    "node_rank": 0,
    "environment": [("A", "1")],
    "workdir": "/w",
    "command": ["true"],
}
NASTY = [
    "",
    " ",
    "a b",
    "it's",
    '"',
    "$HOME",
    "`id`",
    "$(id)",
    "\\",
    "\\n",
    "a\nb",
    "\t",
    "*",
    "~",
    "!x",
    "#x",
    "é 数据",
    "&<>",
    "a;b",
    "-n",
    "{{ x }}",
    "{% x %}",
    "''",
]


def launcher(**values: object) -> str:
    return templating.render("paddle-launch.sh.j2", {**VALUES, **values})


def run(script: str) -> bytes:
    return subprocess.run(["sh"], input=script.encode(), capture_output=True, check=True, timeout=30).stdout


def test_the_launch_script_as_a_whole() -> None:
    text = launcher(environment=[("A", "1"), ("B", "x y")], command=["python3", "-u", "a b"], workdir="/w d")
    body = [line for line in text.splitlines() if not line.startswith("#")]
    assert text.startswith("#!/bin/sh\n")
    assert text.endswith("\n")
    assert body == ["", "export A=1", "export B='x y'", "", "cd '/w d' || exit 1", "exec python3 -u 'a b'"]


@pytest.mark.parametrize("value", NASTY)
def test_a_value_reaches_the_program_as_it_is(value: str, tmp_path: Path) -> None:
    place = tmp_path / f"w{value.replace('/', '')}"
    place.mkdir(exist_ok=True)
    show = "import os, sys; print(os.environ['V'], sys.argv[1], os.getcwd(), sep='|', end='')"
    script = launcher(
        environment=[("V", value)], workdir=str(place), command=[sys.executable, "-c", show, value, "x"]
    )
    assert run(script).decode() == f"{value}|{value}|{place}"


@pytest.mark.parametrize("alias", ["gpu01", "a\nrm -rf x", "a\r\nb", "größe"])
def test_a_comment_cannot_become_a_command(alias: str) -> None:
    text = launcher(alias=alias)
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("rm")] == []
    assert len(lines) == len(launcher().splitlines())


@pytest.mark.parametrize("value", NASTY)
def test_shells_and_shellcheck_accept_the_script(value: str) -> None:
    script = launcher(
        environment=[("A", value), ("B", value)], workdir=f"/w{value}", command=["python3", value, value]
    )
    shells = [shell for shell in ("sh", "dash", "bash", "busybox") if shutil.which(shell)]
    for shell in shells:
        command = [shell, "sh", "-n"] if shell == "busybox" else [shell, "-n"]
        subprocess.run(command, input=script.encode(), check=True, timeout=30)
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", "-"], input=script.encode(), capture_output=True, timeout=30)
        assert done.returncode == 0, done.stdout.decode()


def test_shellcheck_is_here_where_everything_is_tested() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed; the script was checked with sh -n only")


def test_html_escaping_is_off() -> None:
    assert "export A='<&>'" in launcher(environment=[("A", "<&>")])


def test_an_unknown_name_is_an_error_with_the_line(tmp_path: Path) -> None:
    mine = tmp_path / "mine.j2"
    mine.write_text("one\ntwo {{ nonsense }}\n")
    with pytest.raises(TemplateError) as caught:
        templating.render("paddle-launch.sh.j2", VALUES, mine)
    assert caught.value.message == "template mine.j2:2: 'nonsense' is undefined"
    assert "workdir" in caught.value.hint


def test_an_unknown_name_that_goes_through_a_filter_is_an_error(tmp_path: Path) -> None:
    for name in ("quote", "comment"):
        (tmp_path / "mine.j2").write_text("{{ nonsense | " + name + " }}")
        with pytest.raises(TemplateError, match="'nonsense' is undefined"):
            templating.render("x", VALUES, tmp_path / "mine.j2")


@pytest.mark.parametrize("text", ["one\n{% if %}\n", "one\n{{ x\n", "one\n{{ alias | nofilter }}\n"])
def test_a_template_that_is_no_template(text: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.j2"
    mine.write_text(text)
    with pytest.raises(TemplateError) as caught:
        templating.render("paddle-launch.sh.j2", VALUES, mine)
    assert f"{mine}:" in caught.value.message


def test_a_template_that_fails_while_it_renders(tmp_path: Path) -> None:
    (tmp_path / "mine.j2").write_text("one\n{{ 1 / 0 }}")
    with pytest.raises(TemplateError, match=r"mine\.j2:2: division by zero"):
        templating.render("x", VALUES, tmp_path / "mine.j2")


def test_an_override_folder_is_looked_into_first_and_may_extend_ours(tmp_path: Path) -> None:
    assert templating.render("paddle-launch.sh.j2", VALUES, tmp_path) == launcher()
    (tmp_path / "paddle-launch.sh.j2").write_text("# mine: {{ alias }}\n")
    assert templating.render("paddle-launch.sh.j2", VALUES, tmp_path) == "# mine: gpu01\n"


def test_a_missing_override_or_template(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="no such file or folder"):
        templating.render("paddle-launch.sh.j2", VALUES, tmp_path / "missing")
    with pytest.raises(TemplateError) as caught:
        templating.render("missing.j2", VALUES, tmp_path)
    assert caught.value.message == "template missing.j2: not found"
    assert str(templating.folder()) in caught.value.hint


@pytest.mark.parametrize("inside", [True, False])
def test_found_from_a_wheel_and_from_a_checkout(
    inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "clusterkit"
    package.mkdir()
    templates = (package if inside else tmp_path) / "templates"
    templates.mkdir()
    monkeypatch.setattr(templating, "__file__", str(package / "planning" / "templating.py"))
    assert templating.folder() == templates


def test_templates_that_are_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templating, "__file__", str(tmp_path / "clusterkit" / "planning" / "templating.py"))
    with pytest.raises(TemplateError, match="templates are missing"):
        templating.folder()
