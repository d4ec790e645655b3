"""Everything is compiled by running it on tiny models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import fastmix
from fastmix import cli, warming
from result_schemas import complaints
from verb_calls import all_calls


@pytest.fixture
def two_parts(monkeypatch):
    monkeypatch.setattr(warming, "PARTS", dict.fromkeys(["exact", "gibbs"], lambda models: None))


def test_parts_are_named_and_timed(two_parts):
    told: list[fastmix.Progress] = []
    result = fastmix.warm_up(progress=told.append)
    named = [report.what for report in told]
    assert named == list(result.parts) == ["exact", "gibbs"]
    assert set(result.parts.values()) == {0.0}
    assert result.stats["compile_seconds"] == 0.0


def test_command(two_parts, capsys):
    assert cli.run_command(["warm-up", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["parts"] == {"exact": 0.0, "gibbs": 0.0}
    assert complaints(data, "WarmUpResult") == []
    assert data["provenance"]["version"] == fastmix.__version__
    assert cli.run_command(["warm-up"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "compiled or loaded in 0.0 s"


@pytest.mark.slow
def test_nothing_is_left_to_compile_or_load():
    fastmix.warm_up()
    left = {}
    for name, call in all_calls():
        with suppress(fastmix.FastmixError):
            seconds = call().stats["compile_seconds"]
            if seconds:
                left[name] = seconds
    assert not left


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_compiled_by_a_process_after_the_warm_up(tmp_path):
    """With a folder of compiled code that is empty at first, whatever is compiled on this machine already."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    run_python("import fastmix; fastmix.warm_up(progress=None)", environment)
    assert len(list(tmp_path.rglob("*.nbc"))) > 100
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    code += "import json, pathlib, verb_calls\n"
    code += f"print(json.dumps(verb_calls.compiled_by_calls(pathlib.Path({str(tmp_path)!r}))))"
    added = json.loads(run_python(code, environment).splitlines()[-1])
    assert added == {}


def run_python(code, environment):
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    return done.stdout
