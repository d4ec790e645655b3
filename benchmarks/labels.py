"""Most probable labels of pictures beside PyMaxflow: minimum cuts, many labels with Potts tables, and stereo.

    python benchmarks/labels.py [--seed N] [--only NAME ...] [--small] [--photographs ../shared/data/bsds]

Both run on one thread on the same pictures, each in a process of its own, after the same work on a tiny picture, which
compiles. Seconds are CPU seconds, time limits too; those of the peer are for what it is given as arrays, as ours are
for a model.
PyMaxflow (a peer to measure: `pip install PyMaxflow`) makes expansion moves in two cycles for Potts tables, and until
nothing changes for stereo; where neighbors have couplings of their own, which its moves do not take, they are made here
on its graphs. Ours has 1.2 times its seconds as a limit for Potts tables, and then 30 s, or that of the row. A gap is
told as a share of what the configuration gains over the best labels of the pixels alone. The exit code is 1 if a row
misses what is to be reached; without the peer, only gaps are judged.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

for variable in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # before NumPy is loaded; the processes of the rows inherit it

import numpy as np

import fastmix
from fastmix import MarkovRandomField, most_probable

MAX_CUT_RATIO = 1.5
MAX_LABEL_RATIO = 1.2
SHORT_GAP = 1e-3
LONG_GAP = 1e-5
LONG_LIMIT = 30.0


@dataclass
class Picture:
    """Scores (rows, columns, labels), the table that neighbors share, and their weights, one number for all or two."""

    scores: np.ndarray
    table: np.ndarray
    weights: tuple[np.ndarray, np.ndarray] | None = None  # (rows, columns - 1) and (rows - 1, columns)

    def model(self) -> MarkovRandomField:
        """The model of it, whose edges are those to the right and then, or between them, those down."""
        if self.weights is None:
            return MarkovRandomField.image(self.scores, self.table)
        rows, cols = self.scores.shape[:2]
        model = MarkovRandomField.image(self.scores, self.table)
        i, j = model.edges.T
        right = j == i + 1
        weights = np.where(
            right,
            self.weights[0][i // cols, np.minimum(i % cols, cols - 2)],
            self.weights[1][np.minimum(i // cols, rows - 2), i % cols],
        )
        return MarkovRandomField.image(self.scores, self.table, weights=weights)

    def alone(self) -> float:
        """The log-weight of the best labels of the pixels alone."""
        return float(self.model().log_weight(self.scores.argmax(axis=2).reshape(-1)))


Maker = Callable[[np.random.Generator, int, int, int, str], Picture]


def noise(rng: np.random.Generator, rows: int, cols: int, labels: int, option: str) -> Picture:
    """Normal differences of two scores, with this standard deviation, and coupling 1."""
    scores = np.zeros((rows, cols, 2))
    scores[..., 1] = rng.normal(0.0, float(option), (rows, cols))
    return Picture(scores, np.eye(2))


def photograph(rng: np.random.Generator, rows: int, cols: int, labels: int, option: str) -> Picture:
    """Bright and dark in a noisy photograph, where neighbors that look alike are coupled most."""
    gray = gray_picture(rng, rows, cols, option)
    noisy = gray + rng.normal(0.0, 0.1, gray.shape)
    scores = np.stack([-((noisy - level) ** 2) / 0.02 for level in np.quantile(gray, (0.25, 0.75))], axis=2)
    spread = float(np.mean(np.diff(noisy, axis=1) ** 2))
    weights = [3.0 * np.exp(-(np.diff(noisy, axis=axis) ** 2) / (2.0 * spread)) for axis in (1, 0)]
    return Picture(scores, np.eye(2), (weights[0], weights[1]))


def blocks(rng: np.random.Generator, rows: int, cols: int, labels: int, option: str) -> Picture:
    """Squares of 40 x 40 pixels with a random label each, in normal noise with this standard deviation."""
    squares = rng.integers(0, labels, (rows // 40 + 1, cols // 40 + 1))
    truth = squares.repeat(40, axis=0).repeat(40, axis=1)[:rows, :cols]
    scores = (truth[..., None] == np.arange(labels)) + rng.normal(0.0, float(option), (rows, cols, labels))
    return Picture(scores, np.eye(labels))


def weighted_blocks(rng: np.random.Generator, rows: int, cols: int, labels: int, option: str) -> Picture:
    """As :func:`blocks`, where every pair of neighbors has a coupling of its own, between 0.5 and 1.5."""
    picture = blocks(rng, rows, cols, labels, option)
    picture.weights = rng.uniform(0.5, 1.5, (rows, cols - 1)), rng.uniform(0.5, 1.5, (rows - 1, cols))
    return picture


def stereo(rng: np.random.Generator, rows: int, cols: int, labels: int, option: str) -> Picture:
    """A photograph seen from two places: random boxes before a slope, as far as the labels say, and noise."""
    right = gray_picture(rng, rows, cols + labels, option)
    depth = np.tile(np.linspace(0.0, labels / 3.0, rows)[:, None], (1, cols)).astype(int)
    for _ in range(8):
        top, left = int(rng.integers(rows)), int(rng.integers(cols))
        depth[top : top + rows // 3, left : left + cols // 4] = rng.integers(labels // 3, labels)
    columns = np.arange(cols) + labels
    seen = np.take_along_axis(right, columns - depth, axis=1) + rng.normal(0.0, 0.03, depth.shape)
    shifted = np.stack([right[:, columns - d] for d in range(labels)], axis=2)
    scores = -np.minimum(np.abs(seen[..., None] - shifted), 0.2) / 0.03
    apart = np.abs(np.subtract.outer(np.arange(labels), np.arange(labels)))
    return Picture(scores, -np.minimum(apart, 3.0) * 0.7)


def gray_picture(rng: np.random.Generator, rows: int, cols: int, folder: str) -> np.ndarray:
    """Part of a random photograph of a folder, laid side by side where it is too small, with values from 0 to 1."""
    from PIL import Image

    paths = sorted(Path(folder).glob("*.jpg"))
    with Image.open(paths[int(rng.integers(len(paths)))]) as image:
        gray = np.asarray(image.convert("L"), dtype=float) / 255.0
    mirrored = np.concatenate([np.concatenate([gray, gray[::-1]]), np.concatenate([gray, gray[::-1]])[:, ::-1]], axis=1)
    times = -(-rows // mirrored.shape[0]), -(-cols // mirrored.shape[1])
    return np.tile(mirrored, times)[:rows, :cols]


@dataclass
class Row:
    """One row: the picture, what kind of work the peer does, and what is to be reached."""

    maker: Maker
    rows: int
    cols: int
    labels: int = 2
    option: str = "photographs"
    limit: float | None = None  # seconds; of 1.2 times the peer's where there is none
    most_memory: float | None = None  # bytes

    @property
    def is_cut(self) -> bool:
        """Whether the answer is one minimum cut."""
        return self.labels == 2


ROWS = {
    **{f"cut {n} sd {sd}": Row(noise, n, n, option=sd) for n in (500, 1000) for sd in ("0.3", "1", "2")},
    "cut photograph 321x481": Row(photograph, 321, 481),
    "cut photograph 642x962": Row(photograph, 642, 962),
    **{f"Potts 240x320x21 sd {sd}": Row(blocks, 240, 320, 21, sd, most_memory=0.2e9) for sd in ("0.5", "1", "2")},
    **{f"Potts 480x640x21 sd {sd}": Row(blocks, 480, 640, 21, sd, most_memory=0.6e9) for sd in ("0.5", "1", "2")},
    **{
        f"Potts {rows}x{cols}x21 sd {sd}, weights": Row(weighted_blocks, rows, cols, 21, sd, most_memory=memory)
        for rows, cols, memory in ((240, 320, 0.2e9), (480, 640, 0.6e9))
        for sd in ("1", "2")
    },
    "stereo 84x124x14": Row(stereo, 84, 124, 14, limit=1.0),
    "stereo 167x247x24": Row(stereo, 167, 247, 24, limit=5.0),
}


def make(row: Row, seed: int, photographs: str, *, tiny: bool = False) -> Picture:
    """The picture of a row, or a tiny one that is only there to compile."""
    rng = np.random.default_rng(seed)
    option = photographs if row.option == "photographs" else row.option
    size = (20, 30) if tiny else (row.rows, row.cols)
    return row.maker(rng, *size, row.labels, option)


def ours(picture: Picture, limit: float) -> dict[str, float]:
    """CPU seconds of a call within a limit, the log-weight and the gap."""
    model = picture.model()
    begin = time.process_time()
    result = most_probable(model, seed=0, time_limit=limit, progress=None)
    seconds = time.process_time() - begin
    return {"seconds": seconds, "log_weight": result.log_weight, "gap": result.gap, "exact": float(result.exact)}


def peer(picture: Picture, cycles: int | None) -> dict[str, float]:
    """CPU seconds of PyMaxflow: a minimum cut, or expansion moves; and the log-weight."""
    import maxflow
    from maxflow.fastmin import aexpansion_grid

    scores = picture.scores
    begin = time.process_time()
    if scores.shape[2] > 2 and picture.weights is not None:
        labels = weighted_expansions(picture, cycles or 1000)
    elif scores.shape[2] > 2:
        labels = aexpansion_grid(-scores, picture.table.max() - picture.table, max_cycles=cycles)
    else:
        graph = maxflow.GraphFloat()
        nodes = graph.add_grid_nodes(scores.shape[:2])
        if picture.weights is None:
            graph.add_grid_edges(nodes, 1.0, symmetric=True)
        else:
            rights, downs = (np.zeros(scores.shape[:2]) for _ in range(2))
            rights[:, :-1], downs[:-1] = picture.weights
            graph.add_grid_edges(nodes, rights, structure=np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0]]), symmetric=True)
            graph.add_grid_edges(nodes, downs, structure=np.array([[0, 0, 0], [0, 0, 0], [0, 1, 0]]), symmetric=True)
        gain = scores[..., 1] - scores[..., 0]
        graph.add_grid_tedges(nodes, np.maximum(gain, 0.0), np.maximum(-gain, 0.0))
        graph.maxflow()
        labels = ~graph.get_grid_segments(nodes)
    seconds = time.process_time() - begin
    return {"seconds": seconds, "log_weight": float(picture.model().log_weight(labels.astype(int).reshape(-1)))}


def weighted_expansions(picture: Picture, cycles: int) -> np.ndarray:
    """Labels by expansion moves on PyMaxflow's graphs, for Potts couplings of their own, which its moves do not take.

    With x = 1 for a pixel that takes the label k, a pair of neighbors with the labels a and b and the coupling w costs
    ``w [a != b]``, ``w [a != k]``, ``w [b != k]`` and 0 in the cases 00, 01, 10 and 11.
    """
    import maxflow

    assert picture.weights is not None
    rows, cols, num_labels = picture.scores.shape
    scores = picture.scores.reshape(-1, num_labels)
    numbers = np.arange(rows * cols).reshape(rows, cols)
    first = np.concatenate([numbers[:, :-1].ravel(), numbers[:-1].ravel()])
    second = np.concatenate([numbers[:, 1:].ravel(), numbers[1:].ravel()])
    weights = np.concatenate([part.ravel() for part in picture.weights])
    labels = scores.argmax(axis=1)
    pixels = numbers.ravel()

    def cost(given: np.ndarray) -> float:
        """Minus the log-weight, up to a constant."""
        return float(weights[given[first] != given[second]].sum() - scores[pixels, given].sum())

    best = cost(labels)
    for _ in range(cycles):
        before = best
        for k in range(num_labels):
            apart = weights * (labels[first] != labels[second])
            second_alone = weights * (labels[first] != k)
            first_alone = weights * (labels[second] != k)
            gain = scores[pixels, labels] - scores[:, k]  # what it costs to take the label
            gain += np.bincount(first, first_alone - apart, len(pixels)) - np.bincount(second, first_alone, len(pixels))
            graph = maxflow.GraphFloat(len(pixels), len(first))
            nodes = graph.add_nodes(len(pixels))
            graph.add_edges(nodes[first], nodes[second], second_alone + first_alone - apart, np.zeros(len(first)))
            graph.add_grid_tedges(nodes, np.maximum(gain, 0.0), np.maximum(-gain, 0.0))
            graph.maxflow()
            moved = np.where(graph.get_grid_segments(nodes), k, labels)
            found = cost(moved)
            if found < best:
                labels = moved
                best = found
        if best >= before:
            break
    return labels.reshape(rows, cols)


def here(options: argparse.Namespace) -> None:
    """Run one row, ours or the peer's, in this process, and print JSON."""
    row = ROWS[options.only[0]]
    cycles = None if row.maker is stereo else 2

    def work(picture: Picture, limit: float) -> dict[str, float]:
        return peer(picture, cycles) if options.here == "peer" else ours(picture, limit)

    fastmix._clock.time = SimpleNamespace(perf_counter=time.process_time)  # limits whatever else the machine does
    work(make(row, 0, options.photographs, tiny=True), 3.0)
    found = work(make(row, options.seed, options.photographs), options.limit)
    found["bytes"] = peak_memory()
    print(json.dumps(found))


def peak_memory() -> float:
    """Bytes of memory that this process had at most. That of `resource` begins with those of the parent process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024.0 * float(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def measured(name: str, options: argparse.Namespace, who: str, limit: float = 600.0) -> dict[str, float] | None:
    """What a process of its own finds; None where it fails, as that of a peer that is not installed does."""
    command = [sys.executable, __file__, "--here", who, "--seed", str(options.seed), "--only", name]
    command += ["--photographs", options.photographs, "--limit", str(limit)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        if who == "ours":
            print(done.stderr[-2000:], file=sys.stderr)
        return None
    return dict(json.loads(done.stdout.splitlines()[-1]))


def shown(name: str, options: argparse.Namespace) -> bool:
    """Whether a row, which is printed, reaches what is to be reached."""
    row = ROWS[name]
    theirs = measured(name, options, "peer")
    if row.is_cut:
        return cut_shown(name, theirs, measured(name, options, "ours"))
    limit = row.limit or (MAX_LABEL_RATIO * theirs["seconds"] if theirs else 5.0)
    alone = make(row, options.seed, options.photographs).alone()
    reached = True
    for seconds, most_gap in ((limit, SHORT_GAP), (LONG_LIMIT, LONG_GAP)):
        if seconds == LONG_LIMIT and options.short:
            break
        found = measured(name, options, "ours", seconds)
        if found is None:
            print(f"| {name} | failed |")
            return False
        share = found["gap"] / max(found["log_weight"] - alone, 1e-300)
        marks = ["", ""]
        text = ""
        if theirs is not None:
            more = found["log_weight"] - theirs["log_weight"]
            marks[0] = "" if more >= -1e-6 * abs(theirs["log_weight"]) * 1e-3 else " !"
            text = f"{theirs['seconds']:.2f} s, {theirs['bytes'] / 1e9:.2f} GB | {more:+.1f}{marks[0]}"
        marks[1] = "" if share <= most_gap else " !"
        memory = "" if row.most_memory is None or found["bytes"] <= row.most_memory else " !"
        print(
            f"| {name} | {seconds:.2f} s | {found['seconds']:.2f} s, {found['bytes'] / 1e9:.2f} GB{memory} | {text} | "
            f"{share:.1e}{marks[1]} |",
            flush=True,
        )
        reached = reached and not any(marks) and not memory
    return reached


def cut_shown(name: str, theirs: dict[str, float] | None, found: dict[str, float] | None) -> bool:
    """The same of a minimum cut."""
    if found is None:
        print(f"| {name} | failed |")
        return False
    reached = found["exact"] == 1.0
    text = "|"
    if theirs is not None:
        ratio = found["seconds"] / theirs["seconds"]
        reached = reached and ratio <= MAX_CUT_RATIO
        reached = reached and found["log_weight"] >= theirs["log_weight"] - 1e-9 * abs(theirs["log_weight"])
        text = f"{theirs['seconds']:.2f} s | ratio {ratio:.2f}"
    mark = "" if reached else " !"
    print(f"| {name} | | {found['seconds']:.2f} s, {found['bytes'] / 1e9:.2f} GB | {text}{mark} | exact |", flush=True)
    return reached


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=None, help="of the pictures; drawn by default")
    parser.add_argument("--only", nargs="*", default=list(ROWS), choices=list(ROWS), metavar="NAME")
    parser.add_argument("--photographs", default="../shared/data/bsds", help="folder of photographs")
    parser.add_argument("--short", action="store_true", help="without the runs of 30 s")
    parser.add_argument("--here", choices=("ours", "peer"), help="run a row in this process, and print JSON")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of a row that runs here")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = int(np.random.SeedSequence().generate_state(1)[0])
    if options.here:
        here(options)
        return 0
    print(f"seed {options.seed}")
    print("| work | limit | ours | PyMaxflow | more log-weight, or ratio | gap |\n|---|---|---|---|---|---|")
    missed = [name for name in options.only if not shown(name, options)]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
