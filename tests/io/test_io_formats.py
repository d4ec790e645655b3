"""A format from outside of the package: one object, known to reading, writing, the command line and its help."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fastmix.errors import FormatError
from fastmix.io import FORMATS, Format, format_of, formats, read_model, register_format, write_model
from fastmix.model import MarkovRandomField

ADDON = """
import json
from fastmix.errors import FormatError
from fastmix.io import Format, register_format
from fastmix.model import MarkovRandomField

NAMES = ["num_states", "log_unary", "edges", "log_pairwise", "log_constant"]

def read(data, name, max_bytes):
    try:
        content = json.loads(data)
    except ValueError as error:
        raise FormatError(f"{name}: not JSON ({error})") from None
    return MarkovRandomField(**{key: content[key] for key in NAMES})

def write(model, stream):
    values = {key: getattr(model, key) for key in NAMES}
    stream.write(json.dumps({key: getattr(value, "tolist", lambda: value)() for key, value in values.items()}).encode())
    return ["names are not written"] if model.variable_names else []

JSON = Format("JSON", (".json", ".json.gz"), read, write, lambda data: data.startswith(b"{"))
register_format(JSON)
"""
MODEL = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.3, field=[0.1, 0.0, -1.0], variable_names=["a", "b", "c"])


@pytest.fixture
def addon(tmp_path, monkeypatch):
    before = list(FORMATS)
    monkeypatch.chdir(tmp_path)
    Path("addon.py").write_text(ADDON)
    namespace: dict[str, object] = {}
    exec(ADDON, namespace)
    yield namespace["JSON"]
    FORMATS[:] = before


def test_a_new_format_reads_writes_and_is_told_by_content(addon: Format) -> None:
    assert [known.name for known in formats()] == ["UAI", "npz", "BIF", "XMLBIF", "rudy", "QUBO", "Ergo", "JSON"]
    for name in ("model.json", "model.json.gz"):
        assert write_model(MODEL, name) == ["names are not written"]
        Path(name).rename("anything")
        assert np.array_equal(read_model("anything").parameters, MODEL.parameters)
    write_model(MODEL, "still.npz")
    assert read_model("still.npz") == MODEL
    Path("bad").write_text("{")
    with pytest.raises(FormatError, match="bad: not JSON"):
        read_model("bad")
    assert format_of("a.JSON") is addon
    with pytest.raises(ValueError, match=r"'a\.txt'$") as caught:
        write_model(MODEL, "a.txt")
    assert all(suffix in str(caught.value) for suffix in (".uai", ".uai.gz", ".uai.xz", ".npz", *addon.suffixes))


def test_names_and_suffixes_are_taken_once(addon: Format) -> None:
    with pytest.raises(ValueError, match=r"format .*'JSON'"):
        register_format(addon)
    with pytest.raises(ValueError, match=r"format .*'other'"):
        register_format(Format("other", (".npz",), addon.read, addon.write, addon.matches))


def test_the_command_line_knows_it(addon: Format) -> None:
    write_model(MODEL, "model.npz")
    lines = ["convert model.npz model.json", "convert --help", "infer --help"]
    code = "import sys, addon\nfrom fastmix.cli import run_command\n"
    code += f"sys.exit(max(run_command(line.split()) for line in {lines}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(Path("model.json").read_text())["num_states"] == [2, 2, 2]
    convert, _, infer = done.stdout.partition("fastmix infer")
    assert ".json.gz" in convert
    assert "UAI, npz, BIF, XMLBIF, rudy, QUBO, Ergo or JSON" in " ".join(infer.split())


@pytest.mark.parametrize(
    ("suffix", "wanted"), [(".rudy", "a number"), (".bif.gz", "'network'"), (".qubo", "p qubo"), (".txt", "MARKOV")]
)
def test_what_no_format_claims_is_judged_by_its_suffix(tmp_path, suffix, wanted):
    path = tmp_path / f"model{suffix}"
    content = b"3 x\n1 2 zz\n"
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    with pytest.raises(FormatError, match=rf":1: expected .*{wanted}"):
        read_model(path)
