"""A training image in small: a shell, the Python that runs the tests, and what Paddle says of itself.

It is a tar for `docker import`; the same files give the same image. Paddle is not in it, only its metadata:
checks read nothing else of it. The programs are this machine's, with the libraries that they ask for.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

# Of the standard library what no check imports.
LEFT_OUT = re.compile(
    r"/(__pycache__|test|tests|idlelib|lib2to3|tkinter|turtledemo|ensurepip|pydoc_data|unittest|distutils|asyncio"
    r"|email|multiprocessing|xml|wsgiref|config-[^/]*|site-packages|dist-packages)(/|$)"
)
COMPILED = re.compile(r"/(_ctypes|_json|_socket|_struct|_bisect|array|binascii|grp|math|resource|select)\.")
PACKAGES = "opt/packages"
# What an image with this tar as its only layer needs besides.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"/{PACKAGES}"}


def tar(paddle: str = "2.6.2", cuda: str = "11.8", nccl: str = "2.15.5", extra: str = "") -> bytes:
    """The image's file system; `extra` is a file's content that makes it another image."""
    metadata = f"Name: paddlepaddle-gpu\nVersion: {paddle}\n"
    files = {
        f"{PACKAGES}/paddlepaddle_gpu-{paddle}.dist-info/METADATA": metadata,
        f"{PACKAGES}/paddle/version/__init__.py": f"cuda_version = '{cuda}'\nnccl_version = '{nccl}'\n",
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
        "etc/extra": extra,
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in ("tmp", "root", "proc", "sys", "dev", "opt", PACKAGES):
            archive.addfile(_entry(folder, tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755))
        for path, text in sorted(files.items()):
            data = text.encode()
            archive.addfile(_entry(path, size=len(data)), io.BytesIO(data))
        for source in sorted(_programs()):
            data = source.read_bytes()
            archive.addfile(_entry(str(source)[1:], mode=0o755, size=len(data)), io.BytesIO(data))
        python = str(Path(sys.executable).resolve())
        for link, target in (("bin/sh", _shell()), ("usr/bin/python3", python)):
            entry = _entry(link, tarfile.SYMTYPE)
            entry.linkname = target
            archive.addfile(entry)
    return buffer.getvalue()


def saved(name: str, architecture: str) -> bytes:
    """The image as `docker load` takes it, which says that it is for that processor; it runs on ours."""
    layer = tar()
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": [f"{variable}={value}" for variable, value in ENVIRONMENT.items()]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, data in (
            ("manifest.json", json.dumps(manifest).encode()),
            ("config.json", json.dumps(config).encode()),
            ("layer.tar", layer),
        ):
            archive.addfile(_entry(path, size=len(data)), io.BytesIO(data))
    return buffer.getvalue()


def _entry(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, size: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size = kind, mode, size
    return entry


def _shell() -> str:
    return str(Path("/bin/sh").resolve())


def _programs() -> set[Path]:
    """The shell, the interpreter, its standard library, and the shared libraries of all of them."""
    standard = Path(sysconfig.get_path("stdlib"))
    library = {path for path in standard.rglob("*.*") if not LEFT_OUT.search(str(path)[len(str(standard)) :])}
    compiled = {path for path in library if path.suffix == ".so" and COMPILED.search(str(path))}
    modules = {path for path in library if path.suffix == ".py"}
    programs = {Path(_shell()), Path(sys.executable).resolve()}
    return programs | modules | compiled | set(_libraries((*programs, *compiled)))


def _libraries(programs: Iterable[Path]) -> Iterator[Path]:
    """What ldd lists, under the names by which the programs ask for it."""
    said = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    for path in sorted(set(re.findall(r"(?:=> |^\t)(/\S+) \(", said, re.MULTILINE))):
        yield Path(path)
