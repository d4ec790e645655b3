"""The documentation is complete and up to date: names of the reference, pages of the gallery, links."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp

import fastmix

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))
import run_gallery  # noqa: E402

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCRIPTS = sorted(path for path in run_gallery.SCRIPTS.iterdir() if path.suffix in (".py", ".sh"))


def missing_links(text: str, folder: Path) -> list[str]:
    """Relative links and pictures of a page that lead nowhere."""
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [t for t in targets if "://" not in t and t != "command_line.md" and not (folder / t).exists()]


def test_every_public_name_is_in_the_reference():
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    errors = {name for name in fastmix.__all__ if name in dir(fastmix.errors)}  # by automodule
    missing = [name for name in fastmix.__all__ if not re.search(rf"fastmix\.{name}\b", text) and name not in errors]
    assert missing == ["__version__"]
    assert "fastmix.sklearn.MarkovRandomFieldEstimator" in text


def test_every_script_of_the_gallery_has_its_place():
    assert sorted(run_gallery.ORDER) == [path.stem for path in SCRIPTS]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_of_the_gallery_are_short_and_their_pages_show_them(path):
    title, _, code = run_gallery.split_script(path)
    page = (run_gallery.PAGES / f"{path.stem}.md").read_text("utf-8")
    assert run_gallery.count_lines(code) <= 10
    assert page.startswith(f"# {title}\n")
    assert run_gallery.shown(code) in page
    assert f"]({path.stem}.md)" in (run_gallery.PAGES / "index.md").read_text("utf-8")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_notebooks_of_the_gallery_have_the_code_of_their_scripts_and_no_outputs(path, tmp_path, monkeypatch):
    kept = run_gallery.NOTEBOOKS / f"{path.stem}.ipynb"
    monkeypatch.setattr(run_gallery, "NOTEBOOKS", tmp_path)
    assert run_gallery.write_notebook(path).read_text("utf-8") == kept.read_text("utf-8")
    cells = json.loads(kept.read_text("utf-8"))["cells"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells[1:])
    _, _, code = run_gallery.split_script(path)
    assert run_gallery.code_of_notebook(kept).removeprefix(run_gallery.BASH).split() == run_gallery.shown(code).split()


def kaufman_log_z(coupling: float, n: int) -> float:
    """Log Z of the Ising model on an n x n torus (Kaufman, 1949), from its four products."""
    gamma = np.arccosh(np.cosh(2 * coupling) / np.tanh(2 * coupling) - np.cos(np.arange(1, 2 * n) * np.pi / n))
    gamma = np.concatenate([[2 * coupling + np.log(np.tanh(coupling))], gamma])  # the first has a sign
    odd, even = n * gamma[1::2] / 2, n * gamma[::2] / 2
    cosh = [np.log(2 * np.cosh(g)).sum() for g in (odd, even)]
    sinh = [np.log(2 * np.abs(np.sinh(g)) + 1e-300).sum() for g in (odd, even)]
    signs = [1.0, 1.0, 1.0, float(np.sign(gamma[0]))]
    total = logsumexp([cosh[0], sinh[0], cosh[1], sinh[1]], b=signs)
    return float(total - np.log(2) + n * n / 2 * np.log(2 * np.sinh(2 * coupling)))


def test_kaufmans_solution_against_enumeration():
    model = fastmix.MarkovRandomField.ising(fastmix.graphs.grid_edges(4, 4, torus=True), coupling=0.3)
    assert kaufman_log_z(0.3, 4) == pytest.approx(fastmix.infer(model, method="exact").log_z, abs=1e-9)


def test_the_critical_torus_of_the_gallery_is_within_three_standard_errors():
    page = (run_gallery.PAGES / "critical_ising.md").read_text("utf-8")
    short = r"(-?[\d.]+)\((\d+)\)"
    found = re.search(rf"energy {short} specific heat {short}.*log Z: ([\d.]+) ± ([\d.]+)", page, re.DOTALL)
    energy, heat, log_z, log_z_error = (float(found[k]) for k in (1, 3, 5, 6))
    # The figures in brackets are those of the last digits.
    energy_error, heat_error = (float(found[k + 1]) * 10.0 ** -len(found[k].partition(".")[2]) for k in (1, 3))
    beta, step = np.log(1 + np.sqrt(2)) / 2, 1e-4
    below, middle, above = (kaufman_log_z(beta + k * step, 64) for k in (-1, 0, 1))
    assert abs(energy + (above - below) / (2 * step) / 64**2) < 3 * energy_error < 0.01
    assert abs(heat - beta**2 * (above - 2 * middle + below) / step**2 / 64**2) < 3 * heat_error < 0.2
    assert abs(log_z - middle) < 3 * log_z_error < 4


def test_pictures_of_the_gallery_are_small():
    pictures = list((run_gallery.PAGES / "pictures").iterdir())
    assert len(pictures) >= len(SCRIPTS)
    assert max(path.stat().st_size for path in pictures) <= run_gallery.MOST_BYTES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    assert missing_links(page.read_text("utf-8"), page.parent) == []


def test_a_broken_link_is_found():
    assert missing_links("see [this](nowhere.md#part) and [that](https://example.org)", ROOT) == ["nowhere.md"]


def test_a_shell_script_has_title_text_and_code(tmp_path):
    path = tmp_path / "a.sh"
    path.write_text("# Title.\n#\n# Some text.\necho a\n\n# a comment\necho b\n")
    title, text, code = run_gallery.split_script(path)
    assert (title, text, run_gallery.count_lines(code)) == ("Title", "Some text.", 2)


def test_a_script_runs_and_its_picture_and_table_are_kept(tmp_path):
    script = tmp_path / "script.py"
    body = 'class Shown:\n    def _repr_html_(self):\n        return "<b>it</b>"\nShown()\n'
    script.write_text(f'"""Title."""\n{body}')
    run_gallery.run_here(script, tmp_path)
    assert (tmp_path / "table.html").read_text("utf-8") == "<b>it</b>"
    for name, size in (("a.svg", 10), ("a.png", 10), ("b.svg", 200_000), ("b.png", 10)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert [path.name for path in run_gallery.find_pictures(tmp_path)] == ["a.svg", "b.png"]
