"""Run the scripts of examples/gallery and write their pages: ``python examples/run_gallery.py [NAME ..]``.

Every script becomes a notebook without outputs in docs/gallery/notebooks, whose cells run in a process and an empty
folder of its own; ``--notebooks`` writes the notebooks alone. The page of a script in docs/gallery has its text, its
code, what it printed, and its pictures: open figures of Matplotlib, or pictures that it left in the folder. The table
in docs/gallery/index.md has the lines of every script (imports count, blank lines and comments do not) and its seconds.
"""

from __future__ import annotations

import ast
import datetime
import html
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "examples" / "gallery"
PAGES = ROOT / "docs" / "gallery"
NOTEBOOKS = PAGES / "notebooks"
BASH = "%%bash\n"  # how a cell for the shell begins
ORDER = (  # of the tasks on the page
    "critical_ising", "photograph", "survey", "pyagrum_network", "uai_file", "certificate", "rbm",
    "noisy_digits", "notebook", "command_line", "dask_cluster", "paper_figure",
)  # fmt: skip
NEEDS = {"noisy_digits": "torch"}  # large packages: without them the page stays as it is
MOST_BYTES = 100_000  # of a picture
MOST = 2  # pictures on a page
COLUMNS = 3  # pictures side by side
MOST_SECONDS = 60.0


def split_script(path: Path) -> tuple[str, str, str]:
    """Title, text and code of a script: a docstring, or in a shell script its first comment, holds the first two."""
    source = path.read_text("utf-8")
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(source)) or ""
        code = source.split('"""', 2)[2]
    else:
        lines = source.splitlines()
        end = next(i for i, line in enumerate(lines) if not line.startswith("#"))
        text = "\n".join(line.lstrip("# ") for line in lines[:end] if not line.startswith("#!"))
        code = "\n".join(lines[end:])
    title, _, rest = text.partition("\n")
    return title.rstrip("."), rest.strip(), code.strip()


def count_lines(code: str) -> int:
    """Lines that are neither blank nor comments."""
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in code.splitlines())


def shown(code: str) -> str:
    """The code as its page has it: without marks for the linter."""
    return re.sub(r"  # noqa: \S+$", "", code, flags=re.MULTILINE)


def cells_of(path: Path) -> list[tuple[str, str]]:
    """Cells of the notebook that a script becomes, each with its kind: title and text, imports, the rest."""
    title, text, code = split_script(path)
    cells = [("markdown", f"# {title}\n\n{text}")]
    if path.suffix == ".sh":
        return [*cells, ("code", BASH + code)]
    paragraphs = shown(code).split("\n\n")
    num_imports = 0
    while all(line.startswith(("import ", "from ")) for line in paragraphs[num_imports].splitlines()):
        num_imports += 1
    parts = ["\n\n".join(paragraphs[:num_imports]), "\n\n".join(paragraphs[num_imports:])]
    return [*cells, *(("code", part) for part in parts if part)]


def write_notebook(path: Path) -> Path:
    """Write the notebook of a script, without outputs; its path comes back."""
    cells: list[dict[str, Any]] = []
    for number, (kind, source) in enumerate(cells_of(path)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"{path.stem}-{number}".replace("_", "-"), "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append({**cell, "source": source.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    NOTEBOOKS.mkdir(parents=True, exist_ok=True)
    target = NOTEBOOKS / f"{path.stem}.ipynb"
    target.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return target


def code_of_notebook(path: Path) -> str:
    """The code of all cells of a notebook, one after the other."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def run_here(path: Path, output: Path) -> None:
    """Run the cells of a notebook, or a script, in this process; pictures and a last table go to the folder."""
    source = code_of_notebook(path) if path.suffix == ".ipynb" else path.read_text("utf-8")
    tree = ast.parse(source, str(path))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    space: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    exec(compile(tree, str(path), "exec"), space)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), str(path), "eval"), space)
        if hasattr(value, "_repr_html_"):
            (output / "table.html").write_text(value._repr_html_(), "utf-8")
    if "matplotlib.pyplot" in sys.modules:
        plt = sys.modules["matplotlib.pyplot"]
        plt.rcParams["svg.hashsalt"] = "fastmix"  # the same names in every run
        for number in plt.get_fignums():
            save_figure(plt.figure(number), output / f"figure-{number}")


def save_figure(figure: Any, stem: Path) -> None:
    """As SVG, or as PNG where that is smaller than the limit and SVG is not."""
    path = stem.with_suffix(".svg")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    if path.stat().st_size > MOST_BYTES:
        path.unlink()
        figure.savefig(stem.with_suffix(".png"), bbox_inches="tight", dpi=90)


def shrink(path: Path) -> None:
    """A picture that is too large again, with fewer colors and, while that is not enough, fewer pixels."""
    from PIL import Image

    picture = Image.open(path).convert("RGB")
    while path.stat().st_size > MOST_BYTES:
        picture.quantize(256, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)  # keeps rare colors apart
        picture = picture.resize((picture.width * 4 // 5, picture.height * 4 // 5))


def run_script(path: Path) -> dict[str, Any]:
    """Run one script in a process of its own, write its page, and return its row of the table."""
    title, text, code = split_script(path)
    environment = {**os.environ, "MPLBACKEND": "Agg", "COLUMNS": "100", "NO_COLOR": "1", "PYTHONHASHSEED": "0"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "examples"), environment.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        for data in SCRIPTS.glob("*.uai"):
            shutil.copy(data, folder)
        notebook = write_notebook(path)
        command = [sys.executable, __file__, "--here", str(notebook), folder]
        if path.suffix == ".sh":
            command = ["bash", "-e", "-c", code_of_notebook(notebook).removeprefix(BASH)]
        begin = sum(os.times()[2:4])  # of processes that have ended
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        seconds = sum(os.times()[2:4]) - begin
        if done.returncode:
            raise SystemExit(f"{path.name} failed with exit code {done.returncode}\n{done.stdout}{done.stderr}")
        pictures = [keep_picture(found, path.stem, k) for k, found in enumerate(find_pictures(Path(folder))[:MOST])]
        if not pictures:
            raise SystemExit(f"{path.name} left no picture")
        table = Path(folder) / "table.html"
        html_table = table.read_text("utf-8") if table.exists() else ""
    row = {"name": path.stem, "title": title, "lines": count_lines(code), "seconds": round(seconds, 1)}
    write_page(path, row, text, code, done.stdout, html_table, pictures)
    return row


def find_pictures(folder: Path) -> list[Path]:
    """One file for every picture in a folder: SVG, or PNG where that is too large."""
    best: dict[Path, Path] = {}
    for path in [*sorted(folder.rglob("*.png")), *sorted(folder.rglob("*.svg"))]:
        stem = path.with_suffix("")
        if path.suffix == ".png" or path.stat().st_size <= MOST_BYTES or stem not in best:
            best[stem] = path
    return [best[stem] for stem in sorted(best)]


def keep_picture(source: Path, name: str, number: int) -> str:
    """Copy a picture to the pages, small enough; its new name."""
    target = PAGES / "pictures" / f"{name}{'' if number == 0 else f'-{number + 1}'}{source.suffix}"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())
    if target.suffix == ".png":
        shrink(target)
    if target.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{target.name} has {target.stat().st_size} bytes, more than {MOST_BYTES}")
    return f"pictures/{target.name}"


def write_page(
    path: Path, row: dict[str, Any], text: str, code: str, printed: str, table: str, pictures: list[str]
) -> None:
    language = "python" if path.suffix == ".py" else "bash"
    parts = [f"# {row['title']}", text, f"```{language}\n{shown(code)}\n```"]
    if printed.strip():
        parts.append(f"It prints:\n\n```text\n{printed.rstrip()}\n```")
    if table:
        parts.append(f"```{{raw}} html\n{table}\n```")
    parts += [f"![{html.escape(row['title'])}]({picture})" for picture in pictures]
    parts.append(
        f"{row['lines']} lines, {row['seconds']} processor seconds: `examples/gallery/{path.name}`, also as a "
        f"[notebook](notebooks/{path.stem}.ipynb)."
    )
    (PAGES / f"{path.stem}.md").write_text("\n\n".join(part for part in parts if part) + "\n", "utf-8")


def write_index(rows: list[dict[str, Any]], date: str, machine: str) -> None:
    lines = [
        "# Gallery", "",
        "One script for every task, run as it stands here by `make gallery`, with what it printed and its picture.",
        "Each is also a notebook to download, from its page.", "",
        ":::{container} gallery", "",
    ]  # fmt: skip
    cells = [
        f"[![{row['title']}]({picture_of(row['name'])}){{width=260px}}]({row['name']}.md)<br>"
        f"[{row['title']}]({row['name']}.md), {row['lines']} lines, {row['seconds']} s"
        for row in rows
    ]
    cells += [""] * (-len(cells) % COLUMNS)
    lines += ["| " * COLUMNS + "|", "|---" * COLUMNS + "|"]
    lines += [f"| {' | '.join(cells[k : k + COLUMNS])} |" for k in range(0, len(cells), COLUMNS)]
    lines += [
        "", ":::", "",
        "Lines count imports and pictures, not blank lines and comments. Seconds are those of the processor for the",
        "whole process, import included, with compiled kernels on disk (`fastmix warm-up`); the last run was on",
        f"{date} ({machine}).",
    ]  # fmt: skip
    lines += ["", "```{toctree}", ":hidden:", "", *(row["name"] for row in rows), "```", ""]
    (PAGES / "index.md").write_text("\n".join(lines), "utf-8")


def picture_of(name: str) -> str:
    return f"pictures/{next((PAGES / 'pictures').glob(f'{name}.*')).name}"


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--here"]:
        run_here(Path(arguments[1]), Path(arguments[2]))
        return
    scripts = {path.stem: path for path in SCRIPTS.iterdir() if path.suffix in (".py", ".sh")}
    if arguments[:1] == ["--notebooks"]:
        for path in scripts.values():
            write_notebook(path)
        return
    known = {name: scripts[name] for name in ORDER}
    if unknown := [name for name in arguments if name not in known]:
        raise SystemExit(f"no such example: {', '.join(unknown)}; there are {', '.join(known)}")
    PAGES.mkdir(exist_ok=True)
    notes = PAGES / "runs.json"
    rows = json.loads(notes.read_text("utf-8"))["rows"] if notes.exists() else {}
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    for name in arguments or known:
        if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
            print(f"       {name} needs {NEEDS[name]} and was left as it is", flush=True)
            continue
        row = rows[name] = run_script(known[name])
        ordered = {name: rows[name] for name in known if name in rows}
        notes.write_text(json.dumps({"date": date, "machine": machine, "rows": ordered}, indent=1) + "\n", "utf-8")
        write_index(list(ordered.values()), date, machine)
        print(f"{row['seconds']:6.1f} s {row['lines']:3d} lines  {row['title']}", flush=True)
        if row["lines"] > 10 or row["seconds"] > MOST_SECONDS:
            print(f"       {name} is over 10 lines or {MOST_SECONDS:.0f} seconds")


if __name__ == "__main__":
    main(sys.argv[1:])
