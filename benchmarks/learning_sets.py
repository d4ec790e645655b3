"""Learn from many sets by one call, and print a line for each: the tree, ours, the verdict and the seconds.

    python benchmarks/learning_sets.py                          # the sets of ../shared/data/debd
    python benchmarks/learning_sets.py kosarek tretail          # some of them
    python benchmarks/learning_sets.py --words 2000 20000       # variables and rows, one in a hundred is 1

Test log-likelihoods, in nats per row. ``learn(train, validation=valid, ridge="auto")`` is the call for all of them, and
with ``--hidden`` one more argument, ``hidden="auto"``. One thread (NUMBA_NUM_THREADS=1 OMP_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

import fastmix
from fastmix.learning import read_table

SETS = ("nltcs", "msnbc", "plants", "baudio", "accidents", "dna", "tretail", "kosarek", "msweb")
FOLDER = Path(__file__).parents[1].parent / "shared" / "data" / "debd"


def show(name: str, train: Any, valid: Any, test: Any, limit: float, options: dict[str, Any]) -> None:
    """Learn from one set, and print its line."""
    tree = fastmix.learn(train, edges="chow-liu", validation=valid, seed=0)
    base = fastmix.score(tree.model, test, seed=0)
    begun = time.process_time()
    result = fastmix.learn(train, validation=valid, ridge="auto", seed=0, time_limit=limit, **options)
    seconds = time.process_time() - begun
    found = fastmix.score(result.model, test, seed=0, time_limit=max(20.0, limit / 3.0))
    chosen = max(result.stats.get("compared", []), key=lambda entry: entry["validation_log_likelihood"], default={})
    below = (
        "" if (result.validation_log_likelihood or 0.0) >= (tree.validation_log_likelihood or 0.0) - 1e-9 else " BELOW"
    )
    data = fastmix.learning.read_data(train)
    print(
        f"{name:18} n={len(data.num_states):5} rows={data.num_rows:7} tree={base.log_likelihood:9.4f} "
        f"ours={found.log_likelihood:9.4f} +-{found.std_error:6.4f} {chosen.get('model', ''):11} "
        f"edges={result.model.num_edges:6} {result.status!s:13} cpu={seconds:7.1f}s{below}",
        flush=True,
    )


def shared_set(name: str) -> tuple[Any, Any, Any]:
    """Rows to learn from, to choose by and to score."""
    train = read_table(FOLDER / f"{name}.train.csv.xz")
    others = (read_table(FOLDER / f"{name}.{part}.csv.xz", model=train.blank_model()) for part in ("valid", "test"))
    return train, *others


def words(n: int, count: int) -> np.ndarray:
    """Rows of sparse texts: 20 topics, one in a hundred words present, lengths that differ."""
    rng = np.random.default_rng(0)
    topics = np.exp(rng.normal(0.0, 1.5, (20, n)))
    topics *= 0.01 / topics.mean(axis=1, keepdims=True)
    length = np.exp(rng.normal(0.0, 0.5, (count, 1)))
    return (rng.random((count, n)) < np.minimum(0.9, topics[rng.integers(20, size=count)] * length)).astype(np.int8)


def main() -> None:
    """Show the sets that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--words", type=int, nargs=2)
    parser.add_argument("--hidden", action="store_true")
    parser.add_argument("--limit", type=float)
    given = parser.parse_args()
    options: dict[str, Any] = {"hidden": "auto"} if given.hidden else {}
    if given.words:
        rows = words(*given.words)
        a, b = 8 * len(rows) // 10, 9 * len(rows) // 10
        show("words", rows[:a], rows[a:b], rows[b:], given.limit or 600.0, {"num_states": 2, **options})
    else:
        for name in given.sets:
            show(name, *shared_set(name), given.limit or 600.0, options)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
