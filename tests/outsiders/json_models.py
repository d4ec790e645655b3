"""A format: models as JSON."""

from __future__ import annotations

import json
from typing import BinaryIO

import fastmix
from fastmix.io import Format

NAMES = ("num_states", "log_unary", "edges", "log_pairwise", "log_constant")


def read(data: bytes, name: str, max_bytes: float | None) -> fastmix.MarkovRandomField:
    """The model in a file of this name."""
    del max_bytes
    try:
        content = json.loads(data)
    except ValueError as error:
        raise fastmix.FormatError(f"{name}: not JSON ({error})") from None
    return fastmix.MarkovRandomField(**{key: content[key] for key in NAMES})


def write(model: fastmix.MarkovRandomField, stream: BinaryIO) -> list[str]:
    """Write a model of pairs; what was lost, in sentences."""
    values = {key: getattr(model, key) for key in NAMES}
    plain = {key: value if isinstance(value, float) else value.tolist() for key, value in values.items()}
    stream.write(json.dumps(plain).encode())
    return [] if model.variable_names is None else ["names are not written"]


JSON = Format("JSON", (".json",), read, write, lambda data: data.startswith(b"{"))
fastmix.register_format(JSON)
