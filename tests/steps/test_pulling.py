"""How images are named, which lines bring one, and what a runtime's last words mean."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from clusterkit.inventory.model import Settings
from clusterkit.probes.container import CONTAINER, Name, Runtime, pulled_tag
from clusterkit.steps.container import ImagePresent
from clusterkit.steps.container.image import SameImage
from clusterkit.steps.container.pulling import PACE, mark, pull, why
from clusterkit.steps.engine import Fleet, Permissions, Verdict
from tests.facts.recorded import facts

DOCKER = Runtime(
    "docker", ("docker",), "28.2.2", "amd64", "/var/lib/docker", 1, 1, "systemd", False, (), False
)
PODMAN = Runtime("podman", ("podman",), "4.9.3", "amd64", "/var/lib/containers", 1, 1, "", False, (), False)
DIGEST = "sha256:" + 64 * "a"


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("ubuntu", "docker.io/library/ubuntu:latest"),
        ("paddlepaddle/paddle:3.3.1", "docker.io/paddlepaddle/paddle:3.3.1"),
        ("docker.io/paddlepaddle/paddle", "docker.io/paddlepaddle/paddle:latest"),
        ("index.docker.io/ubuntu:22.04", "docker.io/library/ubuntu:22.04"),
        ("localhost/mine:1", "localhost/mine:1"),
        ("registry:5000/a/b", "registry:5000/a/b:latest"),
        ("10.0.0.1:5000/a/b:c", "10.0.0.1:5000/a/b:c"),
        (f"quay.io/a/b:c@{DIGEST}", f"quay.io/a/b@{DIGEST}"),
        (f"a@{DIGEST}", f"docker.io/library/a@{DIGEST}"),
    ],
)
def test_names_are_read_as_docker_reads_them(text: str, full: str) -> None:
    assert Name.of(text).full == full
    assert Name.of(full).full == full
    assert pulled_tag(text) == pulled_tag(full)


def test_different_names_have_different_marks() -> None:
    names = ("a:1", "a:2", "b/a:1", "localhost/a:1", f"a@{DIGEST}")
    assert len({pulled_tag(name) for name in names}) == len(names)


def test_a_pull_by_digest_gives_the_image_its_name_again() -> None:
    first, tag = pull(DOCKER, "10.0.0.1:5000/a:1", DIGEST)
    assert f"docker pull 10.0.0.1:5000/a@{DIGEST} " in first
    assert tag == f"docker tag 10.0.0.1:5000/a@{DIGEST} 10.0.0.1:5000/a:1"
    assert pull(DOCKER, "10.0.0.1:5000/a", DIGEST)[1].endswith(" 10.0.0.1:5000/a")
    assert pull(PODMAN, "a:1", DIGEST)[2].startswith("podman untag docker.io/library/a@sha256:")


def test_every_line_is_quoted_and_ends_as_the_pull_did(tmp_path: Path) -> None:
    """Whatever stands in a name; the time limit's own status becomes words."""
    odd = "it's $(touch x)/`id`:1"
    text = "\n".join([*pull(DOCKER, odd), mark(DOCKER, odd)])
    client = tmp_path / "docker"
    client.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\nexit "${STATUS:-0}"\n')
    client.chmod(0o755)
    for status, code, last in ((0, 0, f"<clusterkit/pulled:{pulled_tag(odd)}>"), (7, 1, f"<{odd}>")):
        ended = subprocess.run(
            ["sh", "-euc", text],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "STATUS": str(status)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, ended.stdout.splitlines()[-1]) == (code, last)
        assert not (tmp_path / "x").exists()
    late = text.replace("timeout -k 10 3000", "timeout -k 10 0.1").splitlines()[0]
    client.write_text("#!/bin/sh\nexec sleep 20\n")
    ended = subprocess.run(
        ["sh", "-euc", late],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "no end after 50 min\n")


def test_progress_counts_layers() -> None:
    said = (
        "1: Pulling from a\naa: Already exists\nbb: Pulling fs layer\ncc: Pulling fs layer\n"
        "cc: Verifying Checksum\ncc: Download complete\ncc: Pull complete\n"
    )
    ended = subprocess.run(
        ["sh", "-c", PACE.progress], input=said, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "2 of 3 layers"
    quiet = subprocess.run(["sh", "-c", PACE.progress], input="", capture_output=True, text=True, check=True)
    assert quiet.stdout == ""


OWN = "reg.example:5000/train:7"
# Words of Docker 20.10 to 29 and Podman 4 and 5, and what becomes of them.
WORDS = json.loads((Path(__file__).parent.parent / "cases" / "pulling" / "last-words.json").read_text())


@pytest.mark.parametrize("case", WORDS, ids=[str(number) for number in range(len(WORDS))])
def test_last_words_become_one_line(case: dict[str, str]) -> None:
    told, hint = why(case["said"], case["image"], DOCKER, "gpu01")
    assert told == case["message"]
    assert hint
    assert "\n" not in told + hint


def test_the_login_is_that_of_whoever_calls_the_runtime() -> None:
    sudo = Runtime(
        "docker", ("sudo", "-n", "docker"), "28.2.2", "amd64", "/d", None, None, "systemd", False, (), False
    )
    assert why("unauthorized", OWN, sudo, "gpu01")[1] == "on gpu01: sudo -n docker login reg.example:5000"
    assert why("unauthorized", "paddlepaddle/paddle:3", DOCKER, "gpu01")[1] == "on gpu01: docker login"
    assert "/etc/containers/certs.d" in why("x509: unknown", OWN, PODMAN, "gpu01")[1]


def pulled_fleet(case: str, images: bool) -> Fleet:
    settings = Settings("gpu01", "gpu01", image="registry.example/train:1", container_runtime="docker")
    found = {"gpu01": facts("gpu01", container=case)}
    return Fleet({"gpu01": settings}, found, permissions=Permissions(images=images))


def test_reset_takes_back_the_name_that_was_pulled_and_no_other() -> None:
    found = pulled_fleet("docker-pulled", images=True)
    tag = f"clusterkit/pulled:{pulled_tag('registry.example/train:1')}"
    assert ImagePresent().undo("gpu01", found) == [
        "docker image rm registry.example/train:1",
        f"docker image rm {tag}",
    ]
    assert ImagePresent().undo("gpu01", pulled_fleet("docker-pulled", images=False)) == []
    assert ImagePresent().undo("gpu01", pulled_fleet("docker", images=True)) == []
    assert ImagePresent().undo("gpu01", pulled_fleet("docker-down", images=True)) == []


def test_a_pull_that_failed_is_told_by_both_steps() -> None:
    found = pulled_fleet("docker-without-image-large", images=False)
    for step in (ImagePresent(), SameImage()):
        verdict = Verdict("gpu01", step.name, "failed", message="as before", hint="as before")
        told = step.blame("toomanyrequests: slow down", verdict, found)
        assert told.message.startswith("the registry registry.example refuses more pulls")
        assert "docker login registry.example" in told.hint
        down = step.blame("no words", verdict, pulled_fleet("docker-down", images=False))
        assert down.message == "no words; as before"


def test_an_environment_is_not_shown() -> None:
    image = facts("gpu01", container="docker-traps")[CONTAINER]
    assert image is not None
    assert "user:pass" not in repr(image)
    assert "user:pass" not in json.dumps(repr(facts("gpu01", container="docker-traps")))
