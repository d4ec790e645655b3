"""Do right answers still say ok? The shares of two versions of the package on the same random models.

    python benchmarks/ok_shares.py [--commit 08375dd] [--families score temper ..] [--scale 1.0] [--seed 1] [--show]

To never say ok would keep wrong answers from being ok, too. So for every family of models (``ok_families.py``) this
prints how many answers were right, before and after, the share of these that were ok, and how many wrong ones were.
The exit code is 1 where a family lost more than a tenth of its share, or of the number of right answers that are ok, or
where more wrong answers are ok than before.

The older commit is checked out into a temporary folder, where all is compiled anew; ``--source`` names a checkout that
is there already. Both versions answer the same questions in turn, one thread each, every answer in a process of its own
that begins with everything imported, and after the same call for another model. Clocks count CPU seconds, so that other
work on the machine changes nothing but, a little, what time limits leave time for. Models are drawn from a seed of the
operating system, which is printed, unless one is given.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "08375dd"
LOST = 0.1  # of a share, relative to before, from which on it counts as lost

if __name__ == "__main__":
    for variable in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # before NumPy is loaded; processes inherit it


# -- in the process of one version ----------------------------------------------------------------------------------


def serve() -> None:
    """Answer requests, one line each: a family and a seed; the answer comes back, or why there is none."""
    time.perf_counter = time.process_time
    from ok_families import FAMILIES

    asks = {family.name: family.ask for family in FAMILIES}
    warm: set[str] = set()
    for line in sys.stdin:
        name, seed = json.loads(line)
        if name not in warm:
            # In this process: what that compiles or loads is there for all its children.
            attempt(asks[name], 0)
            warm.add(name)
        print(json.dumps(in_a_child(asks[name], seed)), flush=True)


def attempt(ask: Any, seed: int) -> dict[str, Any]:
    """An answer as plain data; ``refused`` holds the words of an error of the package, ``failed`` of any other."""
    from fastmix import FastmixError

    try:
        answer = ask(seed)
    except FastmixError as error:
        return {"refused": f"{type(error).__name__}: {error}"[:200]}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:200]}
    if answer is None:
        return {"refused": "nothing to judge"}
    return asdict(answer)


def in_a_child(ask: Any, seed: int) -> dict[str, Any]:
    """The same from a copy of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writing, "w") as stream:
                json.dump(attempt(ask, seed), stream)
        finally:
            os._exit(0)  # whatever happens, a copy must not go on where this process does
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"failed": "the process died"}


# -- in the process that compares -----------------------------------------------------------------------------------


class Version:
    """A process that answers with the package of one source tree."""

    def __init__(self, source: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, family: str, seed: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([family, seed]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the process of one version ended")
        return json.loads(line)


@dataclass
class Count:
    """Answers of one version in one family."""

    right: int = 0
    right_and_ok: int = 0
    wrong_and_ok: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, answer: dict[str, Any]) -> None:
        if "failed" in answer:
            self.failures.append(answer["failed"])
        if "right" not in answer:
            return
        is_ok = answer["status"] == "ok"
        self.right += answer["right"]
        self.right_and_ok += answer["right"] and is_ok
        self.wrong_and_ok += not answer["right"] and is_ok

    @property
    def share(self) -> float:
        return self.right_and_ok / self.right if self.right else math.nan

    def show_share(self) -> str:
        return f"{self.right_and_ok} ({100.0 * self.share:.0f} %)" if self.right else "-"


def differ(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Whether two answers are about different models."""
    if "truth" not in one or "truth" not in two:
        return False
    return not math.isclose(one["truth"], two["truth"], rel_tol=1e-6, abs_tol=1e-6)


def seeds_of(seed: int, family: str, runs: int) -> Iterator[int]:
    """Seeds of the models of a family, the same whichever other families are asked for."""
    import random

    rng = random.Random(f"{seed} {family}")
    for _ in range(runs):
        yield rng.randrange(1 << 31)


def compare(
    versions: tuple[Version, Version], family: str, seeds: Iterator[int], show: bool
) -> tuple[Count, Count, int]:
    """What both versions said, and how many pairs were asked."""
    counts = (Count(), Count())
    runs = 0
    for seed in seeds:
        order = (0, 1) if runs % 2 == 0 else (1, 0)
        answers: dict[int, dict[str, Any]] = {}
        for which in order:
            answers[which] = versions[which](family, seed)
        if differ(answers[0], answers[1]):
            raise SystemExit(f"{family}, seed {seed}: the versions had different models")
        for count, which in zip(counts, (0, 1), strict=True):
            count.add(answers[which])
        runs += 1
        if show and verdict_of(answers[0]) != verdict_of(answers[1]):
            for name, which in (("before", 0), ("after", 1)):
                print(
                    f"    {family} {seed} {name}: {verdict_of(answers[which])}; {words_of(answers[which])}", flush=True
                )
    return counts[0], counts[1], runs


def verdict_of(answer: dict[str, Any]) -> str:
    if "right" not in answer:
        return "none"
    return f"{'right' if answer['right'] else 'wrong'} and {answer['status']}"


def words_of(answer: dict[str, Any]) -> str:
    return answer.get("words") or answer.get("refused") or answer.get("failed") or ""


def row(family: str, runs: int, before: Count, after: Count) -> str:
    """A line of the table, which is one of Markdown."""
    cells = [
        family,
        str(runs),
        f"{before.right} / {after.right}",
        f"{before.show_share()} / {after.show_share()}",
        f"{before.wrong_and_ok} / {after.wrong_and_ok}",
    ]
    return "| " + " | ".join(cells) + " |"


def is_lost(before: Count, after: Count) -> bool:
    """Whether right answers lost more than a tenth of their ok, as a share or in numbers, or wrong ones gained some.

    Numbers count too, for answers that are no longer given are in no share.
    """
    kept = 1.0 - LOST
    fewer = after.right_and_ok < kept * before.right_and_ok
    less = before.right_and_ok > 0 and not after.share >= kept * before.share
    return fewer or less or after.wrong_and_ok > before.wrong_and_ok


def commit_of(folder: Path) -> str:
    """The commit of a folder, and whether what it holds differs from that."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or f"{folder}, of no known commit"


def check_out(commit: str, folder: str) -> Path:
    """The sources of a commit in a folder."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return Path(folder) / "src"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commit", default=BEFORE, help="the older version")
    parser.add_argument("--source", type=Path, help="the src folder of an older version, instead of a commit")
    parser.add_argument("--families", nargs="*", default=[], help="only those whose name contains one of these")
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of models")
    parser.add_argument("--seed", type=int, help="of all models; drawn where it is not given")
    parser.add_argument("--show", action="store_true", help="the answers whose verdicts differ")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return 0
    from ok_families import FAMILIES

    seed = secrets.randbits(32) if options.seed is None else options.seed
    lost = []
    with tempfile.TemporaryDirectory() as folder:
        source = options.source or check_out(options.commit, folder)
        versions = (Version(source), Version(ROOT / "src"))
        before_name = commit_of(options.source) if options.source else options.commit
        print(f"before: {before_name}, after: {commit_of(ROOT)}, seed {seed}\n")
        print("| family | runs | right | ok of the right | wrong and ok |\n|---|---|---|---|---|", flush=True)
        for family in FAMILIES:
            if options.families and not any(part in family.name for part in options.families):
                continue
            runs = max(1, round(options.scale * family.runs))
            before, after, runs = compare(versions, family.name, seeds_of(seed, family.name, runs), options.show)
            print(row(family.name, runs, before, after), flush=True)
            for name, count in (("before", before), ("after", after)):
                if count.failures:
                    print(f"    {len(count.failures)} failed {name}: {count.failures[0]}", flush=True)
            if is_lost(before, after):
                lost.append(family.name)
    if lost:
        print(f"\nlost: {', '.join(lost)}")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
