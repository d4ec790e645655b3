"""The site does what it shows: commands on its pages print what stands there, and words that people search match."""

import doctest
import re
import shlex
import shutil
from pathlib import Path

import pytest

from fastmix.cli import run_command

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*(DOCS / "howto").glob("*.md"), DOCS / "tutorial.md"])
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

#: Words that people type, each with a page that has to have it in its text or its title.
SEARCHED = {
    "max-cut": "howto/max_cut.md",
    "QUBO": "howto/max_cut.md",
    "MAP": "howto/max_cut.md",
    "Ising": "howto/spin_glass.md",
    "spin glass": "howto/spin_glass.md",
    "latent heat": "howto/first_order.md",
    "multicanonical": "howto/first_order.md",
    "partition function": "howto/uai_file.md",
    "proof of optimality": "howto/engines.md",
    "cost function network": "howto/engines.md",
    "weighted model counting": "howto/engines.md",
    "neuron": "howto/neurons.md",
    "protein": "howto/protein_contacts.md",
    "Potts": "howto/protein_contacts.md",
    "FASTA": "howto/protein_contacts.md",
    "mixture": "howto/boltzmann_machine.md",
    "latent class": "howto/boltzmann_machine.md",
    "Bayesian network": "howto/bayesian_network.md",
    "posterior": "howto/bayesian_network.md",
    "hidden Markov model": "howto/bayesian_network.md",
    "Noisy-or": "howto/bayesian_network.md",
    "marginal MAP": "howto/bayesian_network.md",
    "Interventions": "howto/bayesian_network.md",
    "EM": "howto/from_pgmpy.md",
    "pgmpy": "howto/from_pgmpy.md",
    "pyAgrum": "howto/from_pgmpy.md",
    "VariableElimination": "howto/from_pgmpy.md",
    "BayesianEstimator": "howto/from_pgmpy.md",
    "Boltzmann machine": "howto/boltzmann_machine.md",
    "Chow-Liu": "howto/boltzmann_machine.md",
    "impute": "howto/many_rows.md",
    "gradient": "howto/train.md",
    "PyTorch": "howto/train.md",
    "autograd": "howto/train.md",
    "Hessian": "howto/train.md",
    "log partition function": "howto/train.md",
    "sensitivity": "howto/sensitivity.md",
    "mutual information": "howto/sensitivity.md",
    "value of information": "howto/sensitivity.md",
    "CRF": "howto/label_sequences.md",
    "conditional random field": "howto/label_sequences.md",
    "sequence labelling": "howto/label_sequences.md",
    "UAI": "howto/uai_file.md",
    "denoise": "howto/denoise.md",
    "segmentation": "howto/segmentation.md",
    "inpainting": "howto/segmentation.md",
    "entropy": "howto/segmentation.md",
    "stereo": "howto/denoise.md",
    "mixing time": "howto/mixing_time.md",
}


def console_examples(text: str) -> list[tuple[str, str]]:
    """Commands of the blocks of a page that show a console, each with what it is said to print."""
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, printed) for command, _, printed in (part.partition("\n") for part in parts)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_their_page_shows(page, tmp_path, monkeypatch, capsys):
    shutil.copytree(DOCS / "files", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for command, printed in console_examples(page.read_text("utf-8")):
        words = shlex.split(command)
        assert words[0] == "fastmix"
        run_command(words[1:])
        shown = capsys.readouterr()
        lines = [line for line in shown.err.splitlines() if "compiling" not in line]
        got = shown.out + "".join(f"{line}\n" for line in lines)
        assert doctest.OutputChecker().check_output(printed, got, FLAGS), f"{command}\n{got}"


def test_commands_of_a_page_are_found():
    text = "```console\n$ fastmix a\none\n$ fastmix b\n```\n```\n$ no\n```"
    assert console_examples(text) == [("fastmix a", "one\n"), ("fastmix b", "")]


@pytest.mark.parametrize("word", SEARCHED)
def test_searched_words_match_a_page(word):
    text = (DOCS / SEARCHED[word]).read_text("utf-8")
    assert re.search(rf"\b{re.escape(word)}", text), f"{word} is not on {SEARCHED[word]}"
    assert Path(SEARCHED[word]).stem in (DOCS / "howto" / "index.md").read_text("utf-8")
