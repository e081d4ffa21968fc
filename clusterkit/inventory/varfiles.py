"""The YAML and JSON files under `group_vars/` and `host_vars/`, and which of them belong to a name."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit.errors import InventoryError
from clusterkit.inventory.model import Source, Value
from clusterkit.inventory.opaque import VAULT_MARK, Unsafe, Vaulted

if TYPE_CHECKING:
    import yaml

EXTENSIONS = ("", ".yml", ".yaml", ".json")


def variables_of(directory: Path, name: str, warnings: list[str]) -> dict[str, Value]:
    """What the files of `name` in `directory` say; a later file wins over an earlier one.

    Raises InventoryError with file and line. Adds a warning for a file that is encrypted as a whole.
    """
    merged: dict[str, Value] = {}
    for path in files_of(directory, name):
        merged.update(_read(path, warnings))
    return merged


def files_of(directory: Path, name: str) -> list[Path]:
    """The variables files of a host or group: the first of `NAME`, `NAME.yml`, `NAME.yaml`, `NAME.json`.

    A directory of that name stands for all files in it, sorted, hidden and backup files left out.
    """
    if name.startswith("/"):
        return []
    for extension in EXTENSIONS:
        path = directory / f"{name}{extension}"
        if path.exists():
            return list(_files_in(path)) if path.is_dir() else [path]
    return []


def _files_in(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.name.startswith(".") or path.name.endswith("~"):
            continue
        if path.is_dir() and not path.suffix:
            yield from _files_in(path)
        elif path.is_file() and path.suffix in EXTENSIONS:
            yield path


def _read(path: Path, warnings: list[str]) -> dict[str, Value]:
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise InventoryError(path, None, "this file is not UTF-8 text", "save the file as UTF-8") from None
    except OSError as error:
        raise InventoryError(path, None, f"cannot be read: {os.strerror(error.errno or 0)}") from None
    if text.startswith(VAULT_MARK):
        warnings.append(
            f"{path}: encrypted with ansible-vault as a whole, so clusterkit sees none of its variables"
        )
        return {}
    return _from_json(path, text) if text.lstrip().startswith("{") else _from_yaml(path, text, warnings)


def _from_json(path: Path, text: str) -> dict[str, Value]:
    try:
        loaded = json.loads(text)
    except ValueError:
        return _from_yaml(path, text, [])  # a flow mapping of YAML begins the same way
    return {name: Value(raw, Source(path, _line_of(text, name))) for name, raw in loaded.items()}


def _line_of(text: str, name: str) -> int | None:
    found = re.search(re.escape(json.dumps(name)) + r"\s*:", text)
    return text.count("\n", 0, found.start()) + 1 if found else None


def _from_yaml(path: Path, text: str, warnings: list[str]) -> dict[str, Value]:
    import yaml

    loader = _loader_class()(text)
    try:
        root = loader.get_single_node()
        if root is None or (isinstance(root, yaml.ScalarNode) and root.value in ("", "null", "~")):
            return {}
        if not isinstance(root, yaml.MappingNode):
            raise InventoryError(
                path,
                root.start_mark.line + 1,
                "expected variables, one `NAME: VALUE` a line",
                "see docs/inventory.md",
            )
        loader.flatten_mapping(root)
        return _mapping(path, loader, root, warnings)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InventoryError(
            path, mark.line + 1 if mark else None, f"not valid YAML: {error.problem or error.context}"
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        raise InventoryError(path, None, f"not valid YAML: {str(error).splitlines()[0]}") from None
    finally:
        loader.dispose()


def _mapping(
    path: Path, loader: yaml.SafeLoader, root: yaml.MappingNode, warnings: list[str]
) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, node in root.value:
        name = str(loader.construct_object(key, deep=True))
        source = Source(path, key.start_mark.line + 1)
        if name in found and found[name].source.line != source.line:
            warnings.append(
                f"{source}: {name} was already set on line {found[name].source.line}; the last one wins"
            )
        found[name] = Value(loader.construct_object(node, deep=True), source)
    return found


def _loader_class() -> type[yaml.SafeLoader]:
    """PyYAML's safe loader, which also knows `!vault` and `!unsafe`."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    def vaulted(_: Loader, node: yaml.ScalarNode) -> Any:
        return Vaulted(node.value)

    def unsafe(loader: Loader, node: yaml.Node) -> Any:
        return _unsafe(loader.construct_object(_untagged(loader, node), deep=True))

    for tag in ("!vault", "!vault-encrypted"):
        Loader.add_constructor(tag, vaulted)
    Loader.add_constructor("!unsafe", unsafe)
    return Loader


def _untagged(loader: yaml.SafeLoader, node: yaml.Node) -> yaml.Node:
    """The node with the tag that it would have had without `!unsafe`; a scalar is text."""
    import yaml

    if isinstance(node, yaml.ScalarNode):
        return yaml.ScalarNode("tag:yaml.org,2002:str", node.value, node.start_mark, node.end_mark)
    kind = "seq" if isinstance(node, yaml.SequenceNode) else "map"
    return type(node)(f"tag:yaml.org,2002:{kind}", node.value, node.start_mark, node.end_mark)


def _unsafe(raw: Any) -> Any:
    if isinstance(raw, list):
        return [_unsafe(item) for item in raw]
    if isinstance(raw, dict):
        return {key: _unsafe(item) for key, item in raw.items()}
    return Unsafe(raw) if isinstance(raw, str) else raw
