"""Ceilings on what an import loads and what a model weighs, and the order in which modules may import each other."""

from __future__ import annotations

import ast
import functools
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastmix

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "fastmix"

# The package tree: an entry imports from its own word and from those before it, never from those after it. So two rooms
# never import each other.
ORDER = (
    "errors", "_arrays", "_locks", "_memory", "_checks", "_registry", "_clock", "_jit", "_loops", "_show", "_stopping",
    "_student", "_engine",
    "executors", "estimates", "graphs", "model", "instances", "results", "marginals", "io", "interop", "_checkpoint",
    "_context", "method", "_signatures", "theory", "exact", "describe", "chains", "modes", "variational", "bounds",
    "projection", "sampling", "inference", "gradients", "learning", "queries", "denoising", "crf", "experiments",
    "testing", "warming", "sklearn", "dimod", "jax", "torch", "cli", "__main__",
)  # fmt: skip
RANK = {entry: rank for rank, entry in enumerate(ORDER)}


def test_the_picture_of_the_rooms_is_current() -> None:
    """docs/figures/rooms.svg shows all entries, from the command line down, as docs/draw_rooms.py draws them."""
    path = ROOT / "docs" / "draw_rooms.py"
    spec = importlib.util.spec_from_file_location("draw_rooms", path)
    assert spec is not None
    assert spec.loader is not None
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    shown = [room for _, rooms, _ in drawing.LAYERS for room in rooms]
    assert shown[::-1] == [entry for entry in ORDER if entry != "__main__"]
    assert drawing.TARGET.read_text() == drawing.picture()


# -- what is loaded -------------------------------------------------------------------------------------------------


def loaded_by(code: str) -> set[str]:
    """Names of all modules that a new process has loaded after running some code."""
    script = f"{code}\nimport sys\nprint('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_a_verb_lives_in_the_file_of_its_name() -> None:
    """Those that open a context; ``warm_up`` cannot, because a module of the package would take its place."""
    verbs = [
        "ancestral_sample", "anneal", "bracket", "certify", "compare", "draw_exact", "infer", "learn", "log_z",
        "fit_network", "mutual_information", "sensitivity",
        "loopy_bp", "mean_field", "most_probable", "perfect_sample", "project", "sample", "score", "temper",
    ]  # fmt: skip
    homes = {name: getattr(fastmix, name).__module__.rpartition(".")[2] for name in verbs}
    assert homes == {name: name for name in verbs}
    assert fastmix.denoising.denoise.__module__ == "fastmix.denoising.denoise"
    assert fastmix.experiments.run_experiment.__module__ == "fastmix.experiments.run_experiment"


def test_import_is_light() -> None:
    assert not loaded_by("import fastmix") & {"numpy", "fastmix.model"}
    loaded = loaded_by("import fastmix\nfastmix.sample, fastmix.infer, fastmix.MarkovRandomField")
    assert "fastmix.sampling.sample" in loaded
    heavy = {"numba", "llvmlite", "scipy.sparse", "matplotlib", "rich", "typer", "networkx", "pandas", "distributed"}
    assert not loaded & (heavy | {"fastmix.sampling.tempering", "fastmix.projection", "fastmix.variational.loopy_bp"})


def test_every_public_name_is_found() -> None:
    inside = vars(fastmix)  # the stub has the public names alone
    assert sorted([*inside["_HOMES"], "__version__"]) == sorted(fastmix.__all__)
    for name in fastmix.__all__:
        assert name in dir(fastmix)
        assert getattr(fastmix, name) is not None
    for name in inside["_MODULES"]:
        assert getattr(fastmix, name).__name__ == f"fastmix.{name}"
    with pytest.raises(AttributeError, match="'bogus'"):
        fastmix.bogus  # type: ignore[attr-defined]  # noqa: B018


def test_help_is_light() -> None:
    commands = [["--help"], ["infer", "--help"], ["generate", "--help"], ["--version"], ["bogus"]]
    loaded = loaded_by(f"from fastmix import cli\nfor words in {commands!r}:\n    cli.run_command(words)")
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
    assert {"numba", "fastmix.exact.greedy_kernels"} <= loaded_by("import fastmix.exact.greedy_kernels")


# -- what a model weighs --------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the peak memory of a process from Linux")
@pytest.mark.parametrize("side", [500, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_million_variables_fit_a_gibibyte(side: int) -> None:
    """Or a quarter of them a quarter of it, the interpreter included."""
    # The figure is that of this program alone; getrusage would include the process that started it.
    code = f"""
from pathlib import Path
from fastmix import instances
model = instances.ising_grid({side}, {side}, coupling_max=1.0, seed=0)
assert (model.num_variables, model.num_edges) == ({side**2}, {2 * side * (side - 1)})
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert 1024 * int(done.stdout) < 2**30 * side**2 // 1000**2


# -- the package tree -----------------------------------------------------------------------------------------------

MODULES = sorted(SOURCE.rglob("*.py"))


def module_name(path: Path) -> str:
    """The name after ``fastmix.``, empty for the package itself."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path) for path in MODULES}


@functools.cache
def trees() -> dict[str, ast.Module]:
    return {module_name(path): ast.parse(path.read_text()) for path in MODULES}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements inside, in functions and branches too, which takes a tenth of a walk through their expressions."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, part, ()):
            yield inner
            yield from statements(inner)


def imports(tree: ast.Module) -> Iterator[str]:
    """What a module imports of fastmix, also inside functions, named after ``fastmix.``; a dot for a relative one."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "fastmix":
                    yield alias.name.partition(".")[2]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "."
            elif node.module and node.module.split(".")[0] == "fastmix":
                base = node.module.partition(".")[2]
                for alias in node.names:
                    inner = f"{base}.{alias.name}".lstrip(".")
                    yield inner if inner in NAMES else base


def test_every_module_has_its_place() -> None:
    entries = {name.split(".")[0] for name in NAMES} - {""}
    assert entries <= RANK.keys(), f"{sorted(entries - RANK.keys())}: say in ORDER where they belong"


def forbidden_import(name: str, target: str) -> bool:
    """Whether a module imports what is further down the tree."""
    entry, other = name.split(".")[0], target.split(".")[0]
    if target == ".":  # imports must be absolute
        return True
    if other == "":  # the package: its version, and from the top its public names
        return False
    if other in ("cli", "__main__"):
        return other == "__main__" or entry not in ("cli", "__main__")
    return entry != "" and RANK[other] > RANK[entry]  # the public names come from everywhere


def test_imports_go_up_the_tree() -> None:
    offenders = [
        f"{name} must not import {target}"
        for name, tree in trees().items()
        for target in imports(tree)
        if forbidden_import(name, target)
    ]
    assert not offenders, "\n".join(offenders)
    assert forbidden_import("theory.norms", "chains.cpu")
    assert forbidden_import("", "cli")
    assert not forbidden_import("chains.cpu", "theory.norms")


def test_package_names_come_from_modules() -> None:
    # Going through the package from below would hide a circular import; only the top of the tree may.
    offenders = [
        f"{name} imports {alias.name} from fastmix"
        for name, tree in trees().items()
        if RANK.get(name.split(".")[0]) != RANK["cli"]
        for node in statements(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "fastmix"
        for alias in node.names
        if alias.name not in NAMES | {"__version__"}
    ]
    assert not offenders, "\n".join(offenders)


def test_the_ground_stands_alone() -> None:
    assert list(imports(trees()["errors"])) == []
    assert list(imports(trees()["_memory"])) == ["errors"]
    assert set(imports(trees()["_checks"])) <= {"errors", "_arrays", "_memory"}


def trouble_with_all(tree: ast.Module) -> str:
    """What is wrong with a module's list of public names, empty if nothing is."""
    lists = [
        node.value
        for node in tree.body
        if (isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["__all__"])
        or (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "__all__")
    ]
    if len(lists) != 1 or lists[0] is None:
        return "__all__ must be set once"
    public = ast.literal_eval(lists[0])
    if len(set(public)) != len(public):
        return "__all__ names something twice"
    missing = set(public) - set(top_level_names(tree)) - {"__version__"}
    return f"__all__ names what is not there: {sorted(missing)}" if missing else ""


def test_every_module_says_what_is_public() -> None:
    # The names of the package itself are loaded when they are used: test_every_public_name_is_found looks at them.
    modules = {name: tree for name, tree in trees().items() if name}
    offenders = [f"{name}: {trouble}" for name, tree in modules.items() if (trouble := trouble_with_all(tree))]
    assert not offenders, "\n".join(offenders)
    for code, trouble in (("", "once"), ("__all__ = ['a', 'a']\na = 1", "twice"), ("__all__ = ['a']", "not there")):
        assert trouble in trouble_with_all(ast.parse(code))


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
