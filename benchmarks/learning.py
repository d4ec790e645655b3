"""Test log-likelihoods of models learnt from the DEBD sets, with the time that learning took.

``python benchmarks/learning.py [--sets nltcs plants ..] [--data FOLDER] [--backend cpu] [--what likelihood ..]``

Ridge and l1 are chosen on the validation sets. One line of JSON per fit; seconds are without those of compiling.
``--recovery`` instead measures how well the tables of known models (Ising grids, and three states) are found again from
their own draws, and draws a ``--picture``. ``--mixed`` learns from made-up data of two to four states per variable,
with and without missing values.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import fastmix
from fastmix.learning.coordinates import Coordinates

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "debd"  # beside the repository
FITS = {
    "chow-liu": {"edges": "chow-liu"},
    "pseudo-likelihood": {"objective": "pseudo-likelihood", "ridge": "auto"},
    "pseudo-likelihood, l1": {"objective": "pseudo-likelihood", "ridge": "auto", "l1": "auto"},
    "likelihood": {"ridge": "auto"},
    "likelihood, l1": {"ridge": "auto", "l1": "auto"},
    "sampled": {"moments": "sampled"},
    "certified": {"within": fastmix.NormBall("spectral", 0.95)},
}


def read(folder: Path, name: str, part: str) -> np.ndarray:
    with lzma.open(folder / f"{name}.{part}.csv.xz", "rt") as file:
        return np.loadtxt(file, delimiter=",", dtype=np.int8)


def recovery(seed: int, picture: Path | None) -> None:
    """Root mean square error of the tables of grids, in coordinates, by sample size and objective."""
    models = {
        "4x4 grid": fastmix.instances.ising_grid(4, 4, coupling_max=0.7, seed=seed),
        "8x8 grid": fastmix.instances.ising_grid(8, 8, coupling_max=0.7, seed=seed),
        "6x6 grid, 3 states": fastmix.instances.potts_grid(6, 6, coupling_max=0.7, seed=seed),
    }
    fits = {
        "pseudo-likelihood": {"objective": "pseudo-likelihood"},
        "exact": {"moments": "exact"},
        "sampled": {"moments": "sampled"},
    }
    errors: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for name, model in models.items():
        coordinates = Coordinates(model.structure)
        true = coordinates.from_parameters(model.parameters)[0]
        for rows in (1_000, 10_000, 100_000, 1_000_000)[: 3 if "states" in name else 4]:
            data = np.asarray(fastmix.draw_exact(model, num_draws=rows, seed=seed), dtype=np.int8)
            for fit, options in fits.items():
                begin = time.process_time()
                result = fastmix.learn(
                    data, edges=model.edges, ridge=1.0 / rows, num_states=model.num_states, seed=seed, **options
                )
                found = coordinates.from_parameters(result.model.parameters)[0]
                error = float(np.sqrt(np.mean((found - true) ** 2)))
                errors.setdefault((name, fit), []).append((rows, error))
                line = {
                    "model": name, "rows": rows, "fit": fit, "rms_error": error, "status": str(result.status),
                    "cpu_seconds": time.process_time() - begin,
                }  # fmt: skip
                print(json.dumps(line), flush=True)
    if picture is not None:
        draw_recovery(errors, picture)


def draw_recovery(errors: dict[tuple[str, str], list[tuple[int, float]]], path: Path) -> None:
    """Errors of the two Ising grids by sample size, with the slope of one over the square root."""
    from matplotlib.figure import Figure

    axes = Figure(figsize=(7.0, 3.0), layout="constrained").subplots(1, 2, sharey=True)
    marks = {"pseudo-likelihood": ("s", "C1"), "exact": ("o", "C0"), "sampled": ("x", "C2")}
    for ax, name in zip(axes, ("4x4 grid", "8x8 grid"), strict=True):
        for fit, (mark, color) in marks.items():
            rows, values = np.array(errors[name, fit]).T
            ax.loglog(rows, values, mark, color=color, label=fit, fillstyle="none")
        rows, values = np.array(errors[name, "exact"]).T
        ax.loglog(rows, values[0] * np.sqrt(rows[0] / rows), color="0.7", zorder=0)
        ax.set(title=name, xlabel="rows")
    axes[0].set_ylabel("root mean square error")
    axes[0].legend(frameon=False)
    axes[0].figure.savefig(path)


def mixed(seed: int) -> None:
    """Test log-likelihoods of 12 variables with two to four states, whole and with a tenth of the values missing."""
    rng = np.random.default_rng(seed)
    counts = np.array([2, 3, 4] * 4)
    edges = fastmix.graphs.complete_edges(len(counts))
    tables = [0.5 * rng.standard_normal((counts[i], counts[j])) for i, j in edges]
    model = fastmix.MarkovRandomField.from_tables([0.5 * rng.standard_normal(k) for k in counts], edges, tables)
    rows = np.asarray(fastmix.draw_exact(model, num_draws=30_000, seed=seed))
    train, test = rows[:20_000], rows[20_000:]
    holes = np.where(rng.random(train.shape) < 0.1, -1, train)
    print(json.dumps({"fit": "the model itself", "test": fastmix.score(model, test, seed=seed).log_likelihood}))
    for name, data, options in (
        ("pseudo-likelihood", train, {"objective": "pseudo-likelihood"}), ("exact", train, {"moments": "exact"}),
        ("sampled", train, {"moments": "sampled"}),
        ("tempered", train, {"moments": "tempered"}), ("sampled, values missing", holes, {"moments": "sampled"}),
    ):  # fmt: skip
        begin = time.process_time()
        result = fastmix.learn(data, num_states=counts, seed=seed, **options)
        cpu = time.process_time() - begin
        score = fastmix.score(result.model, test, seed=seed)
        line = {
            "fit": name, "test": score.log_likelihood, "std_error": score.std_error, "status": str(result.status),
            "moment_error": result.moment_error, "cpu_seconds": cpu,
        }  # fmt: skip
        print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["nltcs", "plants", "baudio", "accidents", "dna"])
    parser.add_argument("--what", nargs="+", default=list(FITS), choices=list(FITS))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--time-limit", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recovery", action="store_true")
    parser.add_argument("--picture", type=Path, help="of --recovery")
    parser.add_argument("--mixed", action="store_true")
    arguments = parser.parse_args()
    if arguments.mixed:
        mixed(arguments.seed)
        return
    if arguments.recovery:
        recovery(arguments.seed, arguments.picture)
        return
    common = {"seed": arguments.seed, "backend": arguments.backend}
    several = {} if arguments.backend == "cpu" else {"num_chains": 8192}  # more of them take little longer on a GPU
    for name in arguments.sets:
        train, valid, test = (read(arguments.data, name, part) for part in ("train", "valid", "test"))
        if arguments.backend != "cpu":  # compiled once
            for moments in ("sampled", "tempered"):
                fastmix.learn(train[:1000], validation=valid, moments=moments, max_iter=1, **common)
        for what in arguments.what:
            begin, cpu = time.perf_counter(), time.process_time()
            result = fastmix.learn(train, validation=valid, time_limit=arguments.time_limit, **common, **FITS[what])
            compiling = result.stats["compile_seconds"]
            seconds, cpu = time.perf_counter() - begin - compiling, time.process_time() - cpu - compiling
            begin = time.perf_counter()
            score = fastmix.score(result.model, test, **common, **several)
            line = {
                "set": name, "fit": what, "test_log_likelihood": score.log_likelihood, "std_error": score.std_error,
                "log_z_both_ways": score.log_z_both_ways, "log_z": score.log_z, "score_status": str(score.status),
                "status": str(result.status), "ridge": result.ridge, "l1": result.l1,
                "num_edges": result.model.num_edges, "norms": dict(result.norms), "moment_error": result.moment_error,
                "moments": result.moments, "seconds": seconds, "cpu_seconds": cpu,
                "score_seconds": time.perf_counter() - begin, "compile_seconds": compiling,
                "tried": result.stats.get("tried"), "iterations": result.stats.get("num_iterations"),
                "gap": result.stats.get("gap"),
            }  # fmt: skip
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
