"""Ceilings on what an import loads and what a model weighs, and the order in which modules may import each other."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastmix

SOURCE = Path(__file__).resolve().parent.parent / "src" / "fastmix"

# The package tree: an entry imports from its own group and from those before it, never from those after it.
GROUPS = {
    "ground": {"errors", "validation", "resources", "_clock", "_jit"},
    "data": {
        "construction",
        "description",
        "elimination",
        "graphs",
        "instances",
        "io",
        "model",
        "reduction",
        "results",
    },
    "theory": {"dependency", "norms", "mixing", "_mixing_kernels"},
    "engines": {"exact", "variational", "sampling"},
    "built on the engines": {"projection", "tempering", "projected", "inference", "comparison"},
    "applications": {"denoising", "experiments", "testing", "warming", "console", "cli", "__main__"},
}
RANK = {entry: rank for rank, entries in enumerate(GROUPS.values()) for entry in entries}


# -- what is loaded -------------------------------------------------------------------------------------------------


def loaded_by(code: str) -> set[str]:
    """Names of all modules that a new process has loaded after running some code."""
    script = f"{code}\nimport sys\nprint('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_import_is_light() -> None:
    assert not loaded_by("import fastmix") & {"numpy", "fastmix.model"}
    loaded = loaded_by("import fastmix\nfastmix.sample, fastmix.infer, fastmix.MarkovRandomField")
    assert "fastmix.sampling.sampler" in loaded
    heavy = {"numba", "llvmlite", "scipy.sparse", "matplotlib", "rich", "typer", "networkx", "pandas", "distributed"}
    assert not loaded & (heavy | {"fastmix.tempering", "fastmix.projection", "fastmix.variational"})


def test_every_public_name_is_found() -> None:
    assert sorted([*fastmix._HOMES, "__version__"]) == sorted(fastmix.__all__)
    for name in fastmix.__all__:
        assert name in dir(fastmix)
        assert getattr(fastmix, name) is not None
    for name in fastmix._MODULES:
        assert getattr(fastmix, name).__name__ == f"fastmix.{name}"
    with pytest.raises(AttributeError, match="has no attribute 'bogus'"):
        fastmix.bogus  # noqa: B018


@pytest.mark.parametrize(
    "arguments", [["--help"], ["infer", "--help"], ["generate", "--help"], ["--version"], ["bogus"]]
)
def test_help_is_light(arguments: list[str]) -> None:
    loaded = loaded_by(f"from fastmix import cli\ncli._run({arguments!r})")
    assert "fastmix.cli" in loaded
    assert not loaded & {"numba", "llvmlite", "scipy", "matplotlib", "networkx", "pandas"}


def test_small_inference_needs_no_compiler() -> None:
    code = """
import fastmix
model = fastmix.MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=0.5)
result = fastmix.infer(model, evidence={0: 1})
fastmix.draw_exact(model, num_draws=3, seed=0)
assert result.status == "ok"
"""
    assert not loaded_by(code) & {"numba", "llvmlite", "matplotlib", "rich", "typer", "networkx", "pandas"}


def test_this_test_can_fail() -> None:
    assert {"numba", "fastmix.exact.kernels"} <= loaded_by("import fastmix.exact.kernels")


# -- what a model weighs --------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the peak memory of a process from Linux")
def test_a_million_variables_fit_a_gibibyte() -> None:
    # The figure is that of this program alone; getrusage would include the process that started it.
    code = """
from pathlib import Path
from fastmix import instances
model = instances.ising_grid(1000, 1000, coupling_max=1.0, seed=0)
assert (model.num_variables, model.num_edges) == (1_000_000, 1_998_000)
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert 1024 * int(done.stdout) < 2**30


# -- the package tree -----------------------------------------------------------------------------------------------

MODULES = sorted(SOURCE.rglob("*.py"))


def module_name(path: Path) -> str:
    """The name after ``fastmix.``, empty for the package itself."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """What a module imports of fastmix, also inside functions, named after ``fastmix.``."""
    known = {module_name(p) for p in MODULES}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "fastmix":
                    yield alias.name.partition(".")[2]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports must be absolute"
            if node.module and node.module.split(".")[0] == "fastmix":
                base = node.module.partition(".")[2]
                for alias in node.names:
                    inner = f"{base}.{alias.name}".lstrip(".")
                    yield inner if inner in known else base


def test_every_module_has_its_place() -> None:
    entries = {module_name(path).split(".")[0] for path in MODULES} - {""}
    assert entries <= RANK.keys(), f"{sorted(entries - RANK.keys())}: say in GROUPS to which group they belong"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_go_up_the_tree(path: Path) -> None:
    name = module_name(path)
    if name == "":  # the public names come from everywhere, except the command line
        assert not {target.split(".")[0] for target in imports(path)} & {"cli", "console", "__main__"}
        return
    entry = name.split(".")[0]
    for target in imports(path):
        other = target.split(".")[0]
        if other == "":  # the package: its version, and from the top its public names
            continue
        assert RANK[other] <= RANK[entry], f"{name} must not import {target}, which is further down the tree"
        if other in ("cli", "console"):
            assert entry in ("cli", "console", "__main__"), f"{name} must not import {target}"
        if other == "__main__":
            pytest.fail(f"{name} must not import __main__")


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_package_names_come_from_modules(path: Path) -> None:
    # Going through the package from below would hide a circular import; only the top of the tree may.
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "fastmix":
            names = {alias.name for alias in node.names} - {"__version__"}
            modules = {module_name(p) for p in MODULES}
            assert names <= modules or RANK[module_name(path).split(".")[0]] == RANK["cli"]


def test_the_ground_stands_alone() -> None:
    assert list(imports(SOURCE / "errors.py")) == []
    assert list(imports(SOURCE / "resources.py")) == ["errors"]
    assert set(imports(SOURCE / "validation.py")) <= {"errors"}


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_every_module_says_what_is_public(path: Path) -> None:
    tree = ast.parse(path.read_text())
    lists = [
        node.value
        for node in tree.body
        if (isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["__all__"])
        or (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "__all__")
    ]
    assert len(lists) == 1, "__all__ must be set once"
    assert lists[0] is not None
    public = ast.literal_eval(lists[0])
    assert len(set(public)) == len(public)
    missing = set(public) - set(top_level_names(tree)) - {"__version__"}
    assert not missing, f"__all__ names what is not there: {sorted(missing)}"


def top_level_names(tree: ast.Module) -> Iterator[str]:
    nodes = list(tree.body)
    if any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in nodes):
        # Names that are loaded when they are used: the imports for the type checker list them.
        nodes += [inner for node in nodes if isinstance(node, ast.If) for inner in node.body]
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (ast.unparse(target) for target in node.targets)
        elif isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.target)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
