"""Conditional random fields on OCR words and on snakes: accuracy, and CPU seconds of a fit.

    python benchmarks/crf.py [letters] [vowels] [snakes] [drawn] [--data ../shared/data/crf] [--folds 10] [--draws 5]

letters: 6,877 words of pixel letters in ten folds, a chain with pixels as features and the options that are there
without any being given; trained on one fold and tested on nine, and the reverse. To reach: mean letter accuracy 0.795
and 0.865, at most 10 CPU seconds per fit. snakes: grids with 11 labels, the colors of a 3x3 neighborhood as features of
a pixel, those of its two ends as features of an edge, a ridge that a fifth of the training set chooses, predictions by
belief propagation. To reach: 0.995 on the test set in under 3 minutes on two cores, by the pseudo-likelihood; a sampled
likelihood stands beside it. vowels: the letters with two labels, free and within certified sets. drawn: pictures of
8x8 pixels with three labels, drawn from fields whose couplings grow with a feature of the edge, seen through noise;
couplings and noise are drawn anew for every line. Free fields and fields within sets: what certainty costs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import fastmix
from fastmix import NormBall
from fastmix.crf import ConditionalRandomField, Graph

RIDGES = (1e-2, 1e-3, 1e-4)


def letters(folder: Path, num_folds: int) -> None:
    """A line for every direction of the ten folds: mean accuracy, CPU seconds of a fit, mean and largest."""
    data = np.load(folder / "letters.npz")
    pixels = np.unpackbits(data["pixels"], axis=1).reshape(len(data["labels"]), -1).astype(float)
    words = np.split(pixels, data["word_start"][1:-1])
    labels = np.split(data["labels"].astype(int), data["word_start"][1:-1])
    for name, trains_on_one in (("one fold to nine", True), ("nine folds to one", False)):
        accuracies = []
        seconds = []
        for fold in range(num_folds):
            chosen = (data["fold"] == fold) == trains_on_one
            train = np.flatnonzero(chosen)
            test = np.flatnonzero(~chosen)
            field = ConditionalRandomField(progress=None)
            begun = time.process_time()
            field.fit([words[k] for k in train], [labels[k] for k in train])
            seconds.append(time.process_time() - begun)
            accuracies.append(field.score([words[k] for k in test], [labels[k] for k in test]))
            assert field.result_.status == "ok"
        print(
            f"letters, {name} | {np.mean(accuracies):.4f} ({np.std(accuracies):.4f}) | {np.mean(seconds):.2f}, "
            f"{np.max(seconds):.2f}",
            flush=True,
        )


def vowels(folder: Path) -> None:
    """A line for free fields and for those within a certified set, which tell vowels from consonants: with the price.

    The first fold is trained on, the second is the test.
    """
    data = np.load(folder / "letters.npz")
    pixels = np.unpackbits(data["pixels"], axis=1).reshape(len(data["labels"]), -1).astype(float)
    words = np.split(pixels, data["word_start"][1:-1])
    is_vowel = np.isin(data["labels"], [ord(letter) - ord("a") for letter in "aeiou"]).astype(int)
    labels = np.split(is_vowel, data["word_start"][1:-1])
    train = np.flatnonzero(data["fold"] == 0)
    test = np.flatnonzero(data["fold"] == 1)
    for within in (None, NormBall("inf", 0.95), NormBall("inf", 0.5)):
        field = ConditionalRandomField(within=within, progress=None)
        begun = time.process_time()
        field.fit([words[k] for k in train], [labels[k] for k in train])
        fit = field.result_
        spent = time.process_time() - begun
        accuracy = field.score([words[k] for k in test], [labels[k] for k in test])
        price = "" if fit.price is None else f"{fit.price:.4f}"
        print(f"vowels within {within} | {fit.status} | {accuracy:.4f} | {spent:.1f} | {price}", flush=True)


def drawn(num_draws: int) -> None:
    """A line for every drawn world, with a fit for every set: accuracy on other pictures, seconds, and the price."""
    bounds = (None, 2.5, 0.95, 0.5)
    found: dict[float | None, list[tuple[float, float, float]]] = {bound: [] for bound in bounds}
    for seed in range(num_draws):
        rng = np.random.default_rng(seed)
        coupling = rng.uniform(0.5, 2.0)
        noise = rng.uniform(0.7, 1.5)
        train, train_labels = draw_pictures(rng, 30, coupling, noise)
        test, test_labels = draw_pictures(rng, 60, coupling, noise)
        texts = []
        for bound in bounds:
            within = None if bound is None else NormBall("inf", bound)
            field = ConditionalRandomField(within=within, progress=None)
            begun = time.process_time()
            field.fit(train, train_labels)
            spent = time.process_time() - begun
            fit = field.result_
            accuracy = field.score(test, test_labels)
            price = fit.price or 0.0
            found[bound].append((accuracy, spent, price))
            texts.append(f"{bound or 'free'}: {accuracy:.4f} {fit.status} {price:.4f} in {spent:.1f} s")
        print(f"drawn, coupling {coupling:.2f}, noise {noise:.2f} | {' | '.join(texts)}", flush=True)
    for bound in bounds:
        accuracy, spent, price = np.mean(found[bound], axis=0).tolist()
        print(f"drawn within {bound or 'no set'}, mean | {accuracy:.4f} | {spent:.1f} | {price:.4f}", flush=True)


def draw_pictures(
    rng: np.random.Generator, count: int, coupling: float, noise: float
) -> tuple[list[Graph], list[np.ndarray]]:
    """Grids whose features are noisy labels, with a feature of every edge from 0 to 1 that couplings grow with."""
    graphs = []
    labels = []
    for _ in range(count):
        blank = Graph.grid(np.zeros((8, 8, 3)))
        edges = np.asarray(blank.edges)
        strength = rng.uniform(size=len(edges))
        tables = coupling * strength[:, None, None] * np.eye(3)
        model = fastmix.MarkovRandomField.from_tables([np.zeros(3)] * 64, edges, tables)
        states = np.asarray(fastmix.draw_exact(model, num_draws=1, seed=int(rng.integers(2**31))))[0]
        seen = np.eye(3)[states] + noise * rng.normal(size=(64, 3))
        graphs.append(Graph.grid(seen.reshape(8, 8, 3), edge_features=strength[:, None]))
        labels.append(states)
    return graphs, labels


def snakes(folder: Path) -> None:
    """A line for either way to fit the snakes: accuracy on the test set, CPU seconds of the fit and of predictions."""
    data = np.load(folder / "snakes.npz")
    colors = np.unique(data["picture_train"], axis=0)
    train, train_labels = read_snakes(data, "train", colors)
    test, test_labels = read_snakes(data, "test", colors)
    chosen = {}
    for name, options in (
        ("pseudo-likelihood", {"objective": "pseudo-likelihood"}),
        ("sampled likelihood", {"moments": "sampled", "num_chains": 8}),
    ):
        field = ConditionalRandomField(inference="loopy-bp", random_state=0, progress=None)
        field.set_params(**options, **chosen)
        begun = time.process_time()
        if not chosen:
            chosen["ridge"] = best_ridge(field, train, train_labels)
            field.set_params(**chosen)
        field.fit(train, train_labels)
        fit = field.result_
        middle = time.process_time()
        accuracy = field.score(test, test_labels)
        end = time.process_time()
        print(
            f"snakes, {name}, ridge {fit.ridge:g} | {fit.status} | {accuracy:.4f} | {middle - begun:.1f} | "
            f"{end - middle:.1f}",
            flush=True,
        )


def best_ridge(field: ConditionalRandomField, graphs: list[Graph], labels: list[np.ndarray]) -> float:
    """The ridge of the best accuracy on a fifth of the training data, which is held out; the larger of equal ones."""
    held = len(graphs) // 5
    scores = {}
    for ridge in RIDGES:
        field.set_params(ridge=ridge).fit(graphs[held:], labels[held:])
        scores[ridge] = field.score(graphs[:held], labels[:held])
        print(f"  held out, ridge {ridge:g}: {scores[ridge]:.4f}", flush=True)
    return max(scores, key=scores.__getitem__)


def compile_all() -> None:
    """Small fits of all kinds, after which nothing is left to compile."""
    rng = np.random.default_rng(0)
    pictures = [Graph.grid(rng.normal(size=(2, 2, 1)), edge_features=np.ones((4, 1)))]
    chains = [rng.normal(size=(4, 1))]
    for objective, moments in (("likelihood", "auto"), ("pseudo-likelihood", "auto"), ("likelihood", "sampled")):
        for examples in (pictures, chains):
            for within in (None, NormBall("inf", 0.1)):
                field = ConditionalRandomField(
                    objective=objective,  # type: ignore[arg-type]
                    moments=moments,  # type: ignore[arg-type]
                    within=within,
                    max_iter=2,
                    decode="most_probable",
                )
                field.fit(examples, [[0, 1, 1, 0]]).predict(examples)


def read_snakes(data: np.lib.npyio.NpzFile, part: str, colors: np.ndarray) -> tuple[list[Graph], list[np.ndarray]]:
    """Grids with the colors of the neighborhood of every pixel, and their labels."""
    graphs = []
    labels = []
    first = 0
    for height, width in data[f"shape_{part}"].tolist():
        end = first + height * width
        picture = data[f"picture_{part}"][first:end]
        one_hot = (picture[:, None] == colors).all(axis=2).astype(float).reshape(height, width, -1)
        padded = np.pad(one_hot, ((1, 1), (1, 1), (0, 0)))
        shifted = [padded[a : a + height, b : b + width] for a in range(3) for b in range(3)]
        around = np.concatenate(shifted, axis=2)
        blank = Graph.grid(around)
        flat = around.reshape(height * width, -1)
        ends = np.asarray(blank.edges)
        graphs.append(Graph.grid(around, edge_features=np.hstack([flat[ends[:, 0]], flat[ends[:, 1]]])))
        labels.append(data[f"label_{part}"][first:end].astype(int))
        first = end
    return graphs, labels


def main() -> None:
    """The tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["letters", "vowels", "snakes", "drawn"])
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data" / "crf")
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--draws", type=int, default=5)
    arguments = parser.parse_args()
    compile_all()
    if "letters" in arguments.what:
        print("what | mean letter accuracy (standard deviation) | CPU seconds of a fit, mean and largest")
        letters(arguments.data, arguments.folds)
    if "snakes" in arguments.what:
        print("what | status | accuracy | CPU seconds of the fit | of predictions")
        snakes(arguments.data)
    if "vowels" in arguments.what:
        print("what | status | accuracy | CPU seconds of the fit | price per label, nats")
        vowels(arguments.data)
    if "drawn" in arguments.what:
        print("what | by set: accuracy, status, price per label in nats, CPU seconds of the fit")
        drawn(arguments.draws)


if __name__ == "__main__":
    main()
