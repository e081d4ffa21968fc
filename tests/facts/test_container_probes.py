"""How the host's own shell asks Docker and Podman, with programs that answer in their place."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterkit.facts import Facts, gather
from clusterkit.inventory.model import Settings
from clusterkit.probes.container import CONTAINER, INSIDE
from tests.facts.shells import Shell

IMAGE = "registry.example/train:1"
HERE = Settings("here", "127.0.0.1", image=IMAGE, container_runtime="docker", python="/opt/my env/python")

INFO = '{"ServerVersion":"28.2.2","DockerRootDir":"/","Architecture":"x86_64","Warnings":["a\\nb","c\\\\d"]}'
INSPECTED = (
    '{"Id":"sha256:1","RepoTags":["registry.example/train:1"],"Config":{"Env":["A=b\\nc=d"]},"Size":7}'
)
SAID = '{"python":"/usr/bin/python3","version":[3,10,1],"paddle":null,"names":["HOME"]}'

# A stand-in for a client: it writes down how it was called, and answers.
CLIENT = r"""#!/bin/sh
for word in "$@"; do printf '%s\037' "$word"; done >"$CALLS/$$"
case "$*" in
    "version "*) if [ -n "$DENIED" ] && [ -z "$ROOT" ]; then echo "permission denied, no" >&2; exit 1; fi
                 [ -z "$DOWN" ] || { echo; echo "$DOWN" >&2; exit 1; }; echo 28.2.2 ;;
    "info "*) printf '%s\n' "$INFO" ;;
    "image inspect --format {{.Id}}"*) [ -n "$INSPECTED" ] ;;
    "image inspect --format {{json .}}"*) [ -n "$INSPECTED" ] || { echo "No such image" >&2; exit 1; }
                                          printf '%s\n' "$INSPECTED" ;;
    "image inspect"*) printf 'name registry.example/train:1\n\nname clusterkit/pulled:12ab\n\n' ;;
    "images "*) printf 'other:1\nclusterkit/pulled:12ab\n' ;;
    "ps "*) echo "container left run-1 Exited (0) 2 days ago" ;;
    "run "*) case "$*" in *"$REFUSED"*) [ -z "$REFUSED" ] || { echo "docker: refused." >&2
                 echo "Run 'docker run --help' for more information" >&2
                 echo 'level=error msg="error waiting for container: context canceled"' >&2
                 exit 125; } ;; esac
             echo "a warning" >&2; printf '%s\n' "$SAID" ;;
esac
"""
SUDO = r"""#!/bin/sh
[ "$1" = -n ] && shift
[ -z "$PASSWORD" ] || { echo "sudo: a password is required" >&2; exit 1; }
ROOT=yes exec "$@"
"""
PODMAN = '{"host":{"arch":"arm64","security":{}},"store":{"graphRoot":"/"},"version":{"Version":"4.9.3"}}'


class Host:
    """A shell with stand-ins on its PATH."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self._shell = shell
        for name, text in (
            ("docker", CLIENT),
            ("podman", CLIENT),
            ("sudo", SUDO),
            ("nvidia-smi", "#!/bin/sh\n"),
        ):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def ask(self, settings: Settings, **variables: str) -> Facts:
        """The two facts, on a host where these variables tell the stand-ins what to say."""
        shutil.rmtree(self.calls, ignore_errors=True)
        self.calls.mkdir()
        spoken = {"INFO": INFO, "INSPECTED": INSPECTED, "SAID": SAID, "CALLS": str(self.calls), **variables}
        names = ("DENIED", "DOWN", "REFUSED", "PASSWORD", "ROOT")
        environment: Mapping[str, str] = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            **dict.fromkeys(names, ""),
            **spoken,
        }
        return gather(
            replace(self._shell, environment=environment, scripts=[]), settings, [CONTAINER, INSIDE]
        )

    def ran(self) -> list[list[str]]:
        """The words of each `run`."""
        files = sorted(self.calls.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        lines = [path.read_text().split("\037")[:-1] for path in files]
        return [words for words in lines if words[0] == "run"]


@pytest.fixture
def host(shell: Shell, tmp_path: Path) -> Host:
    """In each shell that this machine has."""
    return Host(shell, tmp_path)


def read(facts: Facts) -> Any:
    found = facts[CONTAINER]
    assert found is not None
    return found


def test_what_there_is_is_read(host: Host) -> None:
    facts = host.ask(HERE)
    found = read(facts)
    assert found.runtime.command == ("docker",)
    assert found.runtime.free
    assert found.image.environment == {"A": "b\nc=d"}
    (pulled,) = found.pulled
    assert (pulled.mark, pulled.names) == ("clusterkit/pulled:12ab", ("registry.example/train:1",))
    (left,) = found.containers
    assert (left.name, left.run_id, left.state) == ("left", "run-1", "Exited (0) 2 days ago")
    container = facts[INSIDE]
    assert container is not None
    assert container.inside is not None
    assert container.inside.version == (3, 10, 1)


def test_a_container_is_started_as_a_launch_would(host: Host) -> None:
    odd = replace(
        HERE,
        shm_size="3g",
        container_user="1000:100",
        container_args=(
            "--ulimit",
            "nofile=9:9",
            "-v",
            "/data:/data",
            "--name=x",
            "--privileged",
            "--cap-add=ALL",
        ),
    )
    host.ask(odd)
    (words,) = host.ran()
    assert words[:2] == ["run", "--rm"]
    assert "--pull=never" in words
    before = words[: words.index(IMAGE)]
    assert before[before.index("--user") + 1] == "1000:100"
    assert before[before.index("--gpus") + 1] == "all"
    assert "--shm-size=3g" in before
    assert before[before.index("--ulimit") + 1] == "nofile=9:9"
    assert {"--privileged", "--cap-add=ALL"} <= set(before)
    # No directory of the host is made for a volume, and no name is taken.
    assert not {"-v", "/data:/data", "--name=x"} & set(words)


def test_the_pythons_are_tried_in_this_order(host: Host, tmp_path: Path) -> None:
    host.ask(HERE)
    (words,) = host.ran()
    assert words[-3:] == ["/opt/my env/python", "python3", "python"]


def test_gpus_that_are_refused_do_not_hide_what_is_inside(host: Host) -> None:
    container = host.ask(HERE, REFUSED="--gpus all")[INSIDE]
    assert container is not None
    assert container.refused == "docker: refused."
    assert container.inside is not None
    assert [("--gpus" in words) for words in host.ran()] == [True, False]
    host.ask(replace(HERE, gpu_count=0))
    assert [("--gpus" in words) for words in host.ran()] == [False]


def test_a_container_that_never_starts_is_told_by_its_last_words(host: Host) -> None:
    container = host.ask(HERE, REFUSED="train:1")[INSIDE]
    assert container is not None
    assert (container.inside, container.failed) == (None, "docker: refused.")


def test_sudo_is_tried_where_the_user_may_not_and_the_inventory_permits_it(host: Host) -> None:
    become = replace(HERE, become=True)
    assert read(host.ask(HERE, DENIED="1")).problem == "denied"
    facts = host.ask(become, DENIED="1")
    assert read(facts).runtime.command == ("sudo", "-n", "docker")
    assert facts[INSIDE] is not None
    refused = read(host.ask(become, DENIED="1", PASSWORD="1"))
    assert (refused.problem, refused.said) == ("denied", "sudo: a password is required")
    # Root sees what is really wrong.
    down = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
    assert read(host.ask(become, DENIED="1", DOWN=down)).problem == "down"


def test_what_is_not_there_is_not_asked_for_more(host: Host) -> None:
    facts = host.ask(HERE, INSPECTED="")
    assert read(facts).image is None
    assert facts[INSIDE] is None
    assert host.ran() == []
    (host.folder / "docker").unlink()
    if not any((Path(place) / "docker").exists() for place in os.environ["PATH"].split(":")):
        assert read(host.ask(HERE)).problem == "missing"


def test_bare_hosts_are_not_asked(host: Host) -> None:
    facts = host.ask(replace(HERE, container_runtime="none"))
    assert (facts[CONTAINER], facts[INSIDE], list(host.calls.iterdir())) == (None, None, [])


def test_whatever_stands_in_a_name_is_only_a_name(host: Host, tmp_path: Path) -> None:
    odd = "a'b $(touch x) `touch x`"
    host.ask(replace(HERE, image=odd, python=odd, container_user=odd, shm_size=odd))
    assert not (Path.cwd() / "x").exists()
    assert not (tmp_path / "x").exists()
    (words,) = host.ran()
    assert words[words.index("--user") + 1] == odd
    assert odd in words
    assert shlex.quote(odd) not in words


def test_podman_keeps_no_limit_of_ours(host: Host) -> None:
    limit = 'ulimit -f >"$CALLS.limit"\n'
    (host.folder / "podman").write_text(CLIENT.replace("#!/bin/sh\n", f"#!/bin/sh\n{limit}"))
    facts = host.ask(replace(HERE, container_runtime="podman"), INFO=PODMAN, INSPECTED=f"[{INSPECTED}]")
    assert read(facts).runtime.command == ("podman",)
    assert read(facts).image.id == "sha256:1"
    own = (host.folder / "calls.limit").read_text().strip()
    assert own == "unlimited" or int(own) > 2048
