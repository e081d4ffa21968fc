"""The agent that travels to every host: `clusterkit/node/` as one file that `python3` runs."""

from __future__ import annotations

import io
import zipfile
from importlib import resources

# A fixed date: the same source gives the same bytes, wherever and whenever it is packed.
_DATE = (1980, 1, 1, 0, 0, 0)
_PACKAGE = "clusterkit_node"
_ENTRY = f"import sys\n\nfrom {_PACKAGE}.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"


def build() -> bytes:
    """`agent.pyz`: a zip file with `__main__.py`. The same source gives the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", _ENTRY.encode())
        sources = resources.files("clusterkit").joinpath("node")
        for source in sorted(sources.iterdir(), key=lambda entry: entry.name):
            if source.name.endswith(".py"):
                _add(archive, f"{_PACKAGE}/{source.name}", source.read_bytes())
    return packed.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o600 << 16
    archive.writestr(entry, data)
