"""Measures of how the code reads, by room: what a stranger meets who opens a file.

    python benchmarks/house.py [--offenders packed|docstrings|long|parameters|american] [--room learning] [PATH]

None of the numbers is a verdict: they say where to look. ``--offenders`` lists the places behind one of them.

- packed: assignments of several values to several names in one statement, other than swaps, as a share of all
  assignments. Unpacking what one expression returned is not counted.
- no docstring: functions and methods without one, as a share of all; public ones by number. Overloads, ``__dunder__``
  methods and functions within functions are left out.
- long: functions of more than 80 lines, signature and docstring not counted.
- parameters: functions with more than eight of them, ``self``, arrays and the context not counted; public ones are
  left out, since their options are what users type.
- constants: private upper-case names of modules.
- british: words spelled the British way, in code and in text.
- prose: ``match=`` in tests whose pattern is more than names, numbers and regular punctuation. A pattern that is a
  parameter of the test, or a variable of a loop, counts with each of its values.
- patched: private names that tests replace while they run, other than in ``test_<module>.py`` of their module.
"""

from __future__ import annotations

import argparse
import ast
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LONG = 80  # lines
MOST_PARAMETERS = 8
MOST_WORDS = 3
BRITISH = re.compile(
    r"\w*(?:[Cc]olour|[Nn]eighbour|[Cc]entre|[Cc]entring|[Oo]ptimis|[Nn]ormalis|[Ss]ummaris|[Ff]avour|[Ll]abell|"
    r"[Aa]nalys(?:e[ds]?|ing)\b|[Mm]inimis|[Mm]aximis|[Ii]nitialis|[Rr]ealis|[Rr]ecognis|[Gg]eneralis|[Oo]rganis|"
    r"[Vv]ectoris|[Pp]arametris|[Ss]ymmetris|[Mm]odell|[Cc]ancell(?:ed|ing)|[Bb]ehaviour|[Mm]arginalis|[Ss]erialis)\w*"
)


class Place(NamedTuple):
    """Where something was found."""

    path: Path
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.what}"


def functions_of(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Functions of a module and methods of its classes, and whether each is public."""

    def visit(nodes: list[ast.stmt], public: bool) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node, public and not node.name.startswith("_")
            elif isinstance(node, ast.ClassDef):
                yield from visit(node.body, public and not node.name.startswith("_"))
            elif isinstance(node, ast.If | ast.Try | ast.With):
                yield from visit(node.body, public)
                yield from visit(getattr(node, "orelse", []), public)

    yield from visit(tree.body, True)


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a declaration for type checkers, or the setter of a property."""
    names = {ast.unparse(decorator) for decorator in node.decorator_list}
    return bool(names & {"overload", "typing.overload"}) or any(name.endswith(".setter") for name in names)


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function below its signature and its docstring."""
    first = node.body[1] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body[0]
    return (node.end_lineno or first.lineno) - first.lineno + 1


def own_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Number of parameters of a function without self, arrays and the context."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    count = 0
    for argument in every:
        kind = "" if argument.annotation is None else ast.unparse(argument.annotation)
        is_array = "Array" in kind
        if argument.arg not in ("self", "cls", "context") and not is_array:
            count += 1
    return count


def is_kernel(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is compiled: its arguments are the arrays that it reads."""
    names = r"jit|kernel|device|compiled|intrinsic|overload|inner|outer|fused|summing"
    return any(re.search(names, ast.unparse(decorator)) for decorator in node.decorator_list)


def is_packed(node: ast.Assign) -> bool:
    """Whether an assignment gives several values to several names, and is no swap."""
    target = node.targets[0]
    if not isinstance(target, ast.Tuple) or not isinstance(node.value, ast.Tuple):
        return len(node.targets) > 1
    left = {ast.unparse(part) for part in target.elts}
    right = {ast.unparse(part) for part in node.value.elts}
    used = {ast.unparse(part) for value in node.value.elts for part in ast.walk(value) if isinstance(part, ast.expr)}
    swaps = left == right or bool(left & used)
    return not swaps


class Measures:
    """What was counted in the files of one room."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.places: dict[str, list[Place]] = {}

    def note(self, what: str, place: Place) -> None:
        """Count a place under a name."""
        self.counts[what] += 1
        self.places.setdefault(what, []).append(place)

    def read(self, path: Path, shown: Path) -> None:
        """Count what is in a file."""
        text = path.read_text()
        tree = ast.parse(text)
        self.counts["files"] += 1
        self.counts["lines"] += text.count("\n")
        self._read_functions(tree, shown)
        self._read_assignments(tree, shown)
        self._read_text(path, text, shown)

    def _read_functions(self, tree: ast.Module, shown: Path) -> None:
        for node, public in functions_of(tree):
            magic = node.name.startswith("__") and node.name.endswith("__")
            if magic or is_overload(node):
                continue
            self.counts["functions"] += 1
            if ast.get_docstring(node) is None:
                self.note("docstrings", Place(shown, node.lineno, f"{'public ' if public else ''}{node.name}"))
                self.counts["public without"] += public
            if (lines := body_lines(node)) > LONG:
                self.note("long", Place(shown, node.lineno, f"{node.name}: {lines} lines"))
            if not public and not is_kernel(node) and (count := own_parameters(node)) > MOST_PARAMETERS:
                self.note("parameters", Place(shown, node.lineno, f"{node.name}: {count} parameters"))

    def _read_assignments(self, tree: ast.Module, shown: Path) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                self.counts["assignments"] += 1
                if is_packed(node):
                    self.note("packed", Place(shown, node.lineno, ast.unparse(node)[:100]))
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self.counts["assignments"] += 1
            elif isinstance(node, ast.ExceptHandler) and "KeyboardInterrupt" in ast.unparse(node.type or node):
                self.note("interrupts", Place(shown, node.lineno, "except KeyboardInterrupt"))
            elif isinstance(node, ast.Call) and re.match(r"listening\(", ast.unparse(node)):
                self.note("preludes", Place(shown, node.lineno, "listening(..)"))
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            for name in (part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)):
                if re.fullmatch(r"_[A-Z][A-Z0-9_]+", name):
                    self.note("constants", Place(shown, node.lineno, name))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node)
                self.counts["docstring lines"] += len(docstring.splitlines()) if docstring else 0

    def _read_text(self, path: Path, text: str, shown: Path) -> None:
        self.counts["Any"] += len(re.findall(r"\bAny\b", text))
        self.counts["ignores"] += len(re.findall(r"# type: ignore", text))
        for number, line in enumerate(text.splitlines(), start=1):
            for word in BRITISH.findall(line):
                self.note("american", Place(shown, number, word))
            seeds = r"default_rng\(\[|derive_seed\(|SeedSequence\(|seed \+ 1\b"
            if re.search(seeds, line):
                self.note("sub-seeds", Place(shown, number, line.strip()[:90]))
        with path.open("rb") as file:
            comments = {t.start[0] for t in tokenize.tokenize(file.readline) if t.type == tokenize.COMMENT}
        self.counts["comments"] += len(comments)


def literal_text(node: ast.expr) -> str:
    """The text that stands in an expression for a pattern, without what is put into it."""
    parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return " ".join(parts)


def count_words(pattern: str) -> int:
    """Words of a pattern that are no names: neither in quotes, nor with an underscore, a dot, a digit or capitals.

    What follows ``got`` is the value that was refused.
    """
    text = re.sub(r"\bgot .*", "", pattern)
    text = re.sub(r"\\[a-zA-Z]", " ", text)
    text = re.sub(r"\\", "", text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"", " ", text)
    words = re.split(r"[^\w.=]+", text)
    return sum(re.fullmatch(r"[A-Za-z]?[a-z]+\.?", word) is not None and len(word) > 1 for word in words)


def columns_of(names: ast.expr) -> list[str]:
    """Names that values are given to: of a loop, or the text of ``parametrize``."""
    if isinstance(names, ast.Constant):
        return [name.strip() for name in str(names.value).split(",")]
    if isinstance(names, ast.Tuple | ast.List):
        return [ast.unparse(name).strip("'\"") for name in names.elts]
    return [ast.unparse(names)]


def values_given(function: ast.AST, name: str) -> Iterator[ast.expr]:
    """Expressions that a variable of a test stands for, as a parameter or in a loop over literals."""
    tables: list[tuple[ast.expr, ast.expr]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.For):
            tables.append((node.target, node.iter))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize") and len(node.args) > 1:
            tables.append((node.args[0], node.args[1]))
        elif isinstance(node, ast.Assign):
            tables.append((node.targets[0], ast.List([node.value])))
    for names, values in tables:
        columns = columns_of(names)
        if name not in columns or not isinstance(values, ast.Tuple | ast.List):
            continue
        for value in values.elts:
            if len(columns) == 1:
                yield value
            elif isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(columns):
                yield value.elts[columns.index(name)]


def prose_matches(tests: Path) -> list[Place]:
    """Patterns of ``match=`` in tests that hold more than three words which are no names."""
    found: dict[Place, None] = {}
    for path in sorted(tests.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            for node in ast.walk(function):
                if not isinstance(node, ast.keyword) or node.arg != "match":
                    continue
                patterns = [node.value]
                for part in ast.walk(node.value):
                    if isinstance(part, ast.Name):
                        patterns += values_given(function, part.id)
                for pattern in patterns:
                    if count_words(literal_text(pattern)) > MOST_WORDS:
                        found[Place(path.relative_to(ROOT), pattern.lineno, ast.unparse(pattern)[:90])] = None
    return list(found)


def patched_names(tests: Path) -> list[Place]:
    """Private names that tests replace while they run, elsewhere than in the tests of the file that has them."""
    found = []
    for path in sorted(tests.rglob("*.py")):
        text = path.read_text()
        modules = imported_modules(text)
        room = path.parent.name
        own = path.stem.removeprefix("test_").removeprefix(f"{room}_").strip("_")
        for number, line in enumerate(text.splitlines(), start=1):
            patch = re.search(r"(?:setattr|setitem|patch\.object|patch)\(([^,]+)(?:, *[\"'](\w+))?", line)
            if patch is None:
                continue
            if patch[1][0] in "\"'":
                whole = patch[1].strip("\"')")
            else:
                owner, _, rest = patch[1].partition(".")
                whole = ".".join([modules.get(owner, owner), rest, patch[2] or ""])
            parts = whole.split(".")
            is_private = re.match(r"_[a-zA-Z]", parts[-1]) or any(re.match(r"_[A-Z]", part) for part in parts)
            is_ours = parts[0] == "fastmix" or parts[0] not in modules.values()
            if is_private and is_ours and own not in {part.strip("_") for part in parts[:-1]}:
                found.append(Place(path.relative_to(ROOT), number, line.strip()[:90]))
    return found


def imported_modules(text: str) -> dict[str, str]:
    """What names of a file stand for: the modules that are imported, or those that classes come from."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                found[name.asname or name.name] = f"{node.module}.{name.name}"
        elif isinstance(node, ast.Import):
            for name in node.names:
                found[name.asname or name.name] = name.name
        elif isinstance(node, ast.Assign) and "import_module(" in ast.unparse(node.value):
            module = re.search(r"import_module\(['\"]([\w.]+)", ast.unparse(node.value))
            if module is not None:
                found[ast.unparse(node.targets[0])] = module[1]
    return found


def room_of(path: Path, package: Path) -> str:
    """The folder of a file in the package; ``top`` for files that are in none."""
    parts = path.relative_to(package).parts
    return parts[0] if len(parts) > 1 else "top"


def share(part: int, whole: int) -> str:
    """A share in percent."""
    return f"{100.0 * part / max(1, whole):.1f} %"


def row(name: str, measures: Measures) -> str:
    """A line of the table."""
    c = measures.counts
    return (
        f"{name:<12} {c['files']:>5} {c['lines']:>6} {share(c['packed'], c['assignments']):>8} "
        f"{share(c['docstrings'], c['functions']):>9} {c['public without']:>6} {c['long']:>5} {c['parameters']:>6} "
        f"{share(c['docstring lines'], c['lines']):>8} {share(c['comments'], c['lines']):>8} {c['constants']:>6} "
        f"{c['Any']:>5} {c['ignores']:>7} "
        f"{c['american']:>7} {c['preludes']:>8} {c['interrupts']:>10} {c['sub-seeds']:>5}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", type=Path, default=ROOT / "src" / "fastmix", help="the package")
    offenders = ["packed", "docstrings", "long", "parameters", "constants", "american", "preludes", "interrupts"]
    parser.add_argument("--offenders", choices=[*offenders, "sub-seeds", "prose", "patched"], help="list the places")
    parser.add_argument("--room", help="one room, or one file")
    options = parser.parse_args()
    rooms: dict[str, Measures] = {}
    total = Measures()
    for path in sorted(options.path.rglob("*.py")):
        shown = path.relative_to(options.path)
        room = room_of(path, options.path)
        if options.room is None or options.room.rstrip("/") in (room, str(shown), *map(str, shown.parents)):
            rooms.setdefault(room, Measures()).read(path, shown)
            total.read(path, shown)
    if options.offenders in ("prose", "patched"):
        tests = ROOT / "tests"
        print(*(prose_matches if options.offenders == "prose" else patched_names)(tests), sep="\n")
        return
    if options.offenders:
        print(*total.places.get(options.offenders, []), sep="\n")
        return
    print(
        "room         files  lines   packed no docstr public  long params docstr%  comment consts   Any ignores "
        "british preludes interrupts seeds"
    )
    for name, measures in sorted(rooms.items()):
        print(row(name, measures))
    print(row("all", total))
    print(f"prose matches in tests: {len(prose_matches(ROOT / 'tests'))}")
    print(f"private names patched in tests: {len(patched_names(ROOT / 'tests'))}")


if __name__ == "__main__":
    main()
