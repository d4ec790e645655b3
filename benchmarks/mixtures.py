"""Test log-likelihoods of mixtures of trees on data sets for density estimation, one line per set.

    python benchmarks/mixtures.py [--sets nltcs msnbc ..] [--folder ../shared/data/debd] [--classes] [--seed 0]

The same call on all sets: ``learn(train, validation=valid, hidden=Mixture())``, with ``--classes`` independent given
the component. CPU seconds of one process are those of learning, without reading and scoring; set NUMBA_NUM_THREADS and
OPENBLAS_NUM_THREADS to 1. The Chow-Liu tree on the same rows stands beside it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import fastmix
from fastmix.learning import read_table

SETS = ("nltcs", "msnbc", "plants", "baudio", "accidents", "tretail", "dna", "kosarek", "msweb")


def main() -> None:
    """Learn and score every set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--folder", type=Path, default=Path("../shared/data/debd"))
    parser.add_argument("--classes", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("| set | variables | rows | Chow-Liu | mixture | components | CPU seconds | status |")
    for name in options.sets:
        parts = [options.folder / f"{name}.{part}.csv.xz" for part in ("train", "valid", "test")]
        train, valid, test = (read_table(path) for path in parts)
        tree = fastmix.learn(train, edges="chow-liu", progress=None)
        begun = time.process_time()
        mixture = fastmix.Mixture(tree=not options.classes)
        result = fastmix.learn(train, validation=valid, hidden=mixture, seed=options.seed, progress=None)
        seconds = time.process_time() - begun
        scores = [fastmix.score(found.model, test, progress=None).log_likelihood for found in (tree, result)]
        size = result.stats["num_components"]
        print(
            f"| {name} | {len(train.num_states)} | {train.num_rows:,} | {scores[0]:.3f} | {scores[1]:.3f} | {size} "
            f"| {seconds:.1f} | {result.status} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
