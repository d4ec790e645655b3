"""The JSON schemas of docs/schemas/results.json, and what tests ask of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "docs" / "schemas" / "results.json"


@cache
def schemas() -> dict[str, Any]:
    """The whole file."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def validator(name: str) -> Any:
    """What checks data by the schema of a class of results, or of another part of the file."""
    import jsonschema

    whole = schemas()
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": whole["$defs"]})


def complaints(data: Mapping[str, Any], name: str) -> list[str]:
    """What a schema says against data: nothing where it is as documented."""
    return [f"{name}{error.json_path[1:]}: {error.message}" for error in validator(name).iter_errors(data)]


def classes() -> list[str]:
    """Names of the classes of results that have a schema, and of what commands print beside them."""
    return [part["$ref"].rpartition("/")[2] for part in schemas()["anyOf"]]


def resolved(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part of the file, or the one that it refers to."""
    while "$ref" in part:
        found: Any = schemas()
        for name in part["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        part = found
    return part


def properties(part: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of an object by name, those of the parts that it is made of included."""
    part = resolved(part)
    found: dict[str, Any] = {}
    for base in part.get("allOf", ()):
        found |= properties(base)
    return found | part.get("properties", {})


def documented_keys(name: str) -> Iterator[str]:
    """The keys of a class as ``key``, and those of its statistics as ``stats.key``."""
    for key, part in properties(schemas()["$defs"][name]).items():
        yield key
        if key == "stats":
            yield from (f"stats.{inner}" for inner in properties(part))


def produced_keys(data: Mapping[str, Any]) -> Iterator[str]:
    """The keys of an answer, named as :func:`documented_keys` names them."""
    for key, value in data.items():
        yield key
        if key == "stats":
            yield from (f"stats.{inner}" for inner in value)
