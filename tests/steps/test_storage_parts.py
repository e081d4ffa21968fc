"""Parts of the storage steps: names of servers, options, /etc/fstab written and restored by real shells."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from clusterkit.inventory.model import Mount
from clusterkit.probes.storage import FstabLine
from clusterkit.probes.storage.servers import Server, host_of, server_of
from clusterkit.probes.storage.tables import escape, fstab_line, mounted, unescape
from clusterkit.steps.storage import changing, fstab
from clusterkit.steps.storage.fstab import Marks
from clusterkit.steps.storage.identity import export_of
from clusterkit.steps.storage.options import differing
from tests.facts.shells import Shell, shell

__all__ = ["shell"]

NAS = Mount("nas:/data", "/nowhere/data", "nfs4", "vers=4.2")


@pytest.mark.parametrize(
    ("source", "host", "export"),
    [
        ("nas:/data", "nas", "/data"),
        ("nas:/data/", "nas", "/data"),
        ("nas://data//x", "nas", "/data/x"),
        ("10.0.0.9:/", "10.0.0.9", "/"),
        ("[fd00::9]:/data", "fd00::9", "/data"),
        ("//Nas/Share", "Nas", "//nas/share"),
        ("/dev/sdb1", "", "/dev/sdb1"),
        ("tmpfs", "", "tmpfs"),
        ("UUID=0a34-07de", "", "UUID=0a34-07de"),
    ],
)
def test_a_source_names_server_and_export(source: str, host: str, export: str) -> None:
    assert (host_of(source), export_of(source)) == (host, export)


@pytest.mark.parametrize(
    ("kind", "options", "server"),
    [
        ("nfs4", "", Server("nas", 2049, 4)),
        ("nfs", "", Server("nas", 2049, 3)),
        ("nfs", "nfsvers=4.1", Server("nas", 2049, 4)),
        ("nfs", "vers=3,port=20490", Server("nas", 20490, 3)),
        ("nfs4", "port=0", Server("nas", 2049, 4)),
        ("nfs", "proto=rdma,port=20049", None),
        ("nfs", "rdma", None),
        ("nfs", "proto=udp", None),
        ("glusterfs", "", Server("nas", 24007)),
        ("lustre", "", None),
    ],
)
def test_whom_to_ask(kind: str, options: str, server: Server | None) -> None:
    assert server_of(Mount("nas:/data", "/data", kind, options)) == server


KERNEL = ("rw", "noatime", "rw", "vers=4.2", "rsize=1048576", "hard", "proto=tcp", "sec=sys", "addr=10.0.0.9")


@pytest.mark.parametrize(
    ("declared", "differs"),
    [
        ("", []),
        ("vers=4.2,hard,noatime,rw", []),
        ("vers=4", []),
        ("nfsvers=4.2,proto=tcp,sec=sys", []),
        # Agreed between client and server, or for the host's own tools.
        ("rsize=65536,timeo=50,_netdev,nofail,bg,x-systemd.automount,nconnect=8,defaults", []),
        ("ro", [("ro", "rw")]),
        ("soft", [("soft", "hard")]),
        ("vers=3,sec=krb5", [("vers=3", "vers=4.2"), ("sec=krb5", "sec=sys")]),
        ("noexec,nosuid", [("noexec", "exec"), ("nosuid", "suid")]),
        ("noac", [("noac", "ac")]),
    ],
)
def test_options_that_matter(declared: str, differs: list[tuple[str, str]]) -> None:
    assert differing(declared, KERNEL) == differs


def test_what_nobody_declares_is_writable_and_hard() -> None:
    assert differing("vers=4.2", ("ro", "vers=4.2", "soft")) == [("rw", "ro"), ("hard", "soft")]
    assert differing("ro,soft", ("rw", "ro", "soft")) == []


def test_what_is_not_shown_is_not_compared() -> None:
    assert differing("hard,vers=4.2,proto=tcp", ("rw", "user_id=0", "allow_other")) == []


@pytest.mark.parametrize("word", ["/data", "/with blank", "/tab\there", "/back\\slash", "/#hash", "/ä"])
def test_fields_of_tables(word: str) -> None:
    assert unescape(escape(word)) == word
    assert not set(escape(word)) & set(" \t#")
    line = fstab_line(f"nas:/x {escape(word)} nfs4 defaults 0 0")
    assert line is not None
    assert line.path == word
    point = escape(word, fstab=False)
    assert mounted(f"1 2 0:3 / {point} rw - nfs4 nas:/x rw,vers=4.2")[0] == word


@pytest.mark.parametrize("text", ["# nas:/x /data nfs4", "", "   ", "swap swap"])
def test_lines_that_mount_nothing(text: str) -> None:
    assert fstab_line(text) is None


def test_marks_survive_writing_and_reading() -> None:
    for marks in (Marks(), Marks(made=2), Marks(found=True, newline=True), Marks(1, True, True)):
        line = fstab_line(fstab.written(NAS, marks))
        assert line is not None
        assert fstab.marks(line) == marks
        assert fstab.entry_of(line) == fstab.entry(NAS)


TABLES = [
    "",
    "/dev/sda1 / ext4 defaults 0 1\n",
    "/dev/sda1 / ext4 defaults 0 1",
    "\n# a comment that does not end\n\t /dev/sda1\t/ ext4 defaults",
    "a\n\n\n",
]


def _run(shell: Shell, lines: list[str], file: Path) -> None:
    text = "\n".join(["set -eu", *lines]).replace("/etc/fstab", str(file))
    subprocess.run(shell.command, input=text, text=True, timeout=30, check=True)


def _remember(shell: Shell, file: Path, mount: Mount) -> FstabLine:
    ends = not file.read_bytes() or file.read_bytes().endswith(b"\n")
    _run(shell, changing.remember(mount, Marks(newline=not ends)), file)
    line = fstab_line(file.read_text().splitlines()[-1])
    assert line is not None
    return line


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_restored_byte_for_byte(shell: Shell, table: str, tmp_path: Path) -> None:
    file = tmp_path / "fstab"
    file.write_text(table)
    file.chmod(0o640)
    first = _remember(shell, file, NAS)
    second = _remember(shell, file, Mount("/dev/x", "/nowhere/else\\ too", "ext4"))
    assert [line for line in file.read_text().splitlines() if "x-clusterkit" in line] == [
        "nas:/data /nowhere/data nfs4 vers=4.2,_netdev,nofail,x-clusterkit"
        + (",x-clusterkit.newline" if table and not table.endswith("\n") else "")
        + " 0 0",
        "/dev/x /nowhere/else\\134\\040too ext4 nofail,x-clusterkit 0 0",
    ]
    _run(shell, changing.take_back([first, second]), file)
    assert file.read_text() == table
    assert file.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["fstab"]


@pytest.mark.parametrize("table", TABLES)
def test_what_others_wrote_since_stays(shell: Shell, table: str, tmp_path: Path) -> None:
    file = tmp_path / "fstab"
    file.write_text(table)
    line = _remember(shell, file, NAS)
    with file.open("a") as later:
        later.write("later /later ext4 defaults 0 0\n")
    _run(shell, changing.take_back([line]), file)
    newline = "\n" if table and not table.endswith("\n") else ""
    assert file.read_text() == f"{table}{newline}later /later ext4 defaults 0 0\n"


def test_an_outdated_line_is_corrected_in_its_place(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "fstab"
    file.write_text("first")
    old = _remember(shell, file, NAS)
    with file.open("a") as later:
        later.write("last\n")
    _run(shell, changing.correct(old, Mount("nas:/data", NAS.path, "nfs4", "vers=4.1"), 2), file)
    assert file.read_text().splitlines() == [
        "first",
        "nas:/data /nowhere/data nfs4 vers=4.1,_netdev,nofail,x-clusterkit,x-clusterkit.made=2,"
        "x-clusterkit.newline 0 0",
        "last",
    ]
