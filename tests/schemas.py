"""The JSON Schema files of docs/schema, which every document that we print must satisfy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

FOLDER = Path(__file__).parent.parent / "docs" / "schema"


def validate(name: str, document: Any) -> None:
    """Raise jsonschema.ValidationError, which says where, if the document does not satisfy `name`."""
    files = {path.name: json.loads(path.read_text()) for path in FOLDER.glob("*.schema.json")}
    registry: Registry[Any] = Registry().with_resources(
        (file, Resource.from_contents(schema)) for file, schema in files.items()
    )
    schema = files[f"{name}.schema.json"]
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(
        schema, registry=registry, format_checker=Draft202012Validator.FORMAT_CHECKER
    ).validate(document)
