"""Tables for people: what is left out of them is said, and what is special about an answer is in them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import CONTRADICTION, Run

import fastmix
from fastmix import MarkovRandomField, instances
from fastmix.cli import tables
from fastmix.io import write_model


def test_a_model_without_configurations(run: Run) -> None:
    Path("none.uai").write_text(CONTRADICTION)
    outcome = run("infer", "none.uai", "--method", "exact")
    assert outcome.code == 0
    assert "Z = 0" in outcome.out + outcome.err
    outcome = run("bracket", "none.uai")
    assert outcome.code == 0
    assert "Z = 0" in outcome.err


def test_in_a_terminal_the_first_variables_and_states_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    num_states = 300
    wide = MarkovRandomField.from_tables([np.arange(num_states) / num_states], [], [])
    tables.show_marginals(fastmix.infer(wide))
    shown = capsys.readouterr()
    assert "..." in shown.out
    assert len(shown.out.split()) < num_states
    model = MarkovRandomField.ising([(0, 1)], 0.1, num_variables=1000)
    tables.show_most_probable(fastmix.most_probable(model))
    shown = capsys.readouterr()
    assert "more variables" in shown.err
    assert len(shown.out.splitlines()) < 1000


def test_the_bias_of_certified_draws_is_in_the_table(run: Run) -> None:
    write_model(instances.ising_grid(3, 3, coupling_max=0.2, seed=0), "weak.npz")
    outcome = run("sample", "weak.npz", "--accuracy", "0.1", "--seed", "1")
    assert outcome.code == 0
    assert "largest bias possible" in outcome.out
    assert "largest bias possible" not in run("sample", "weak.npz", "--num-sweeps", "200", "--seed", "1").out


def test_a_refusal_among_methods_has_its_reason(run: Run) -> None:
    three = MarkovRandomField.potts([(0, 1), (1, 2), (0, 2)], [0.5, -0.5, 0.5], 3)
    write_model(three, "three.npz")
    outcome = run("compare", "three.npz", "--methods", "swendsen-wang,mean-field", "--seed", "1", "--time-limit", "1")
    reason = fastmix.compare(three, methods=["swendsen-wang"], seed=1, time_limit=1.0).rows[0].note
    assert reason
    said = " ".join(outcome.err.split())
    assert f"swendsen-wang refused: {reason}"[:60] in said
