"""Which inventory a command means when it names none."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.errors import InputError, NotFound
from clusterkit.inventory import Found, find, members_pattern


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str = "h1\n") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_the_strongest_that_there_is_wins(here: Path) -> None:
    environ = {"CLUSTERKIT_INVENTORY": "from-env.ini"}
    write(here / "inventories" / "only.ini")
    assert find(None, here, {}) == Found(Path("inventories/only.ini"), "the only file in ./inventories")
    write(here / "inventory.ini")
    assert find(None, here, {}) == Found(Path("inventory.ini"), "./inventory.ini")
    write(here / "clusterkit.toml", 'inventory = "named.ini"\n')
    write(here / "named.ini")
    assert find(None, here, {}) == Found(Path("named.ini"), "named by clusterkit.toml")
    write(here / "from-env.ini")
    assert find(None, here, environ) == Found(Path("from-env.ini"), "named by CLUSTERKIT_INVENTORY")
    write(here / "given.ini")
    assert find("given.ini", here, environ) == Found(Path("given.ini"), "named on the command line")


def test_paths_are_relative_to_the_directory_asked_about(tmp_path: Path) -> None:
    write(tmp_path / "inventory.ini")
    assert find(None, tmp_path, {}).path.resolve() == (tmp_path / "inventory.ini").resolve()
    assert find(str(tmp_path / "inventory.ini"), Path("/"), {}).path == tmp_path / "inventory.ini"


def test_an_inventory_that_was_named_and_is_not_there_is_an_error(here: Path) -> None:
    write(here / "inventory.ini")
    with pytest.raises(NotFound) as caught:
        find("gpu.ini", here, {})
    assert caught.value.message == "gpu.ini: there is no such inventory file (named on the command line)"
    with pytest.raises(NotFound, match=r"env\.ini: .* \(named by CLUSTERKIT_INVENTORY\)"):
        find(None, here, {"CLUSTERKIT_INVENTORY": "env.ini"})
    write(here / "clusterkit.toml", 'inventory = "toml.ini"\n')
    with pytest.raises(NotFound, match=r"toml\.ini: .* \(named by clusterkit\.toml\)"):
        find(None, here, {})
    with pytest.raises(NotFound) as caught:
        find("gpu01,gpu02", here, {})
    assert caught.value.hint.startswith("a list of hosts is not an inventory here")


def test_nothing_found_lists_what_was_looked_for(here: Path) -> None:
    with pytest.raises(NotFound) as caught:
        find(None, here, {})
    assert caught.value.message == (
        "no inventory: looked for an argument, CLUSTERKIT_INVENTORY (not set), clusterkit.toml (not there), "
        "./inventory.ini and a file in ./inventories"
    )
    write(here / "clusterkit.toml", "")
    with pytest.raises(NotFound, match=r"clusterkit\.toml \(without `inventory`\)"):
        find(None, here, {})


def test_several_inventories_are_listed_and_other_files_do_not_count(here: Path) -> None:
    for name in ("a.ini", "README.md", ".hidden", "a.ini~", "old.bak"):
        write(here / "inventories" / name)
    (here / "inventories" / "group_vars").mkdir()
    assert find(None, here, {}).path == Path("inventories/a.ini")
    write(here / "inventories" / "b.ini")
    with pytest.raises(NotFound) as caught:
        find(None, here, {})
    assert caught.value.message == (
        "which inventory? ./inventories has several: inventories/a.ini, inventories/b.ini"
    )


def test_members_pattern_is_the_projects_or_all_but_spares(here: Path) -> None:
    assert members_pattern(here) == "all:!spares"
    write(here / "clusterkit.toml", 'hosts = "trainers:!gpu03"\n')
    assert members_pattern(here) == "trainers:!gpu03"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('inventroy = "x"\n', "clusterkit.toml: 'inventroy' is not known here", "did you mean 'inventory'?"),
        (
            "forks = 3\n",
            "clusterkit.toml: 'forks' is not known here",
            "known are: inventory, hosts, driver_table, xid_table, diagnoses",
        ),
        ("[hosts]\n", "clusterkit.toml: 'hosts' has to be a text", 'for example hosts = "all:!spares"'),
        (
            "inventory = 5\n",
            "clusterkit.toml: 'inventory' has to be a text",
            'for example inventory = "inventory.ini"',
        ),
    ],
)
def test_an_unusable_project_file_is_refused(here: Path, text: str, message: str, hint: str) -> None:
    write(here / "clusterkit.toml", text)
    for ask in (lambda: find(None, here, {}), lambda: members_pattern(here)):
        with pytest.raises(InputError) as caught:
            ask()
        assert (caught.value.message, caught.value.hint) == (message, hint)


def test_broken_toml_is_refused_with_its_line(here: Path) -> None:
    write(here / "clusterkit.toml", "inventory = inventory.ini\n")
    with pytest.raises(InputError, match=r"clusterkit\.toml: not valid TOML: .*line 1"):
        find(None, here, {})


def test_an_argument_needs_no_project_file(here: Path) -> None:
    write(here / "clusterkit.toml", "broken")
    write(here / "given.ini")
    assert find("given.ini", here, {}).path == Path("given.ini")
