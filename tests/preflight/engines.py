"""Real Docker and Podman on sandbox hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from clusterkit.sandbox.sandbox import Sandbox
from tests.preflight import tiny_image
from tests.preflight.faults import do, told

PACKAGES = ("docker.io", "docker-registry", "podman", "crun")
ROOT = Path(__file__).parent.parent.parent

_START = """
[ -z "$1" ] || mount -t tmpfs -o "size=$1" full /var/lib/docker
# Everything in the sandboxes' networks is a registry without TLS.
setsid dockerd --insecure-registry 10.0.0.0/8 >>/var/log/dockerd.log 2>&1 </dev/null &
for try in $(seq 300); do docker version >/dev/null 2>&1 && exit 0; sleep 0.1; done
tail -n 5 /var/log/dockerd.log >&2; exit 1
"""
_STOP = """
kill "$(cat /run/docker.pid)" || exit 1
for try in $(seq 300); do [ -e /run/docker.pid ] || exit 0; sleep 0.1; done; exit 1
"""


def missing() -> str:
    """Why there is no Docker here; "" if there is, after its packages were installed."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "sandbox hosts need Linux and root"
    script = [str(ROOT / "scripts" / "debian-packages"), "the test of containers", *PACKAGES]
    done = subprocess.run(script, capture_output=True, text=True, timeout=900, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()[-300:]


def start_docker(sandbox: Sandbox, host: str, size: str = "") -> None:
    """The daemon answers; with `size` its disk is a new one, of so much."""
    do(sandbox, host, f"set -- {size or chr(39) * 2}\n{_START}")


def stop_docker(sandbox: Sandbox, host: str) -> None:
    """The daemon has ended."""
    do(sandbox, host, _STOP)


def import_image(sandbox: Sandbox, host: str, name: str) -> None:
    """The small training image is on the host, under that name."""
    changes = " ".join(
        f"--change 'ENV {variable}={value}'" for variable, value in tiny_image.ENVIRONMENT.items()
    )
    where = "/var/lib/docker/tiny.tar"
    Path(f"/proc/{sandbox.init(host).pid}/root{where}").write_bytes(tiny_image.tar())
    do(sandbox, host, f"docker import {changes} {where} {name} && rm {where}")


def load_image(sandbox: Sandbox, host: str, name: str, architecture: str) -> None:
    """The small training image is on the host, under that name, and says that it is for that processor."""
    where = "/var/lib/docker/saved.tar"
    Path(f"/proc/{sandbox.init(host).pid}/root{where}").write_bytes(tiny_image.saved(name, architecture))
    do(sandbox, host, f"docker load --quiet --input {where} && rm {where}")


def derive_image(sandbox: Sandbox, host: str, name: str, base: str, **variables: str) -> None:
    """An image on top of another one, which sets variables."""
    changes = " ".join(f"--change 'ENV {variable}={value}'" for variable, value in variables.items())
    script = f"id=$(docker create {base} sh) && docker commit {changes} $id {name} && docker rm $id"
    do(sandbox, host, script)


def images(sandbox: Sandbox, host: str) -> dict[str, str]:
    """Every name of an image that Docker has there → the image's id."""
    listed = told(sandbox, host, "docker images --no-trunc --format '{{.Repository}}:{{.Tag}} {{.ID}}'")
    return dict(sorted(line.split() for line in listed.splitlines()))
