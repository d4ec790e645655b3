"""A network of survey items, learnt from made-up answers, with a picture: ``python examples/survey.py [OUT.svg]``.

Twelve questions about work, health and town with the answers disagree, neutral and agree. The answers of 4,000 people
are drawn from a network that the learning does not see: the picture shows what it finds, and how often each edge is
found again in random halves of the answers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import fastmix
from fastmix.learning import stability

TOPICS = {
    "work": ["pay is fair", "hours are long", "boss listens", "team helps"],
    "health": ["sleep well", "do sport", "eat well", "feel stress"],
    "town": ["street is noisy", "parks are near", "buses are good", "rent is high"],
}
ANSWERS = ("disagree", "neutral", "agree")
# Which questions go together (positive) or against each other, and how strongly.
TRUTH = {
    ("pay is fair", "boss listens"): 0.7, ("boss listens", "team helps"): 0.9, ("hours are long", "boss listens"): -0.5,
    ("sleep well", "feel stress"): -0.9, ("do sport", "eat well"): 0.8, ("do sport", "feel stress"): -0.5,
    ("street is noisy", "parks are near"): -0.6, ("parks are near", "buses are good"): 0.5,
    ("hours are long", "feel stress"): 0.8, ("street is noisy", "sleep well"): -0.7,
    ("pay is fair", "rent is high"): -0.5,
}  # fmt: skip


def draw_answers(num_people: int, seed: int) -> pd.DataFrame:
    """Answers of people who do not exist."""
    items = [item for topic in TOPICS.values() for item in topic]
    rng = np.random.default_rng(seed)
    scale = np.array([-1.0, 0.0, 1.0])
    edges = [(items.index(a), items.index(b)) for a, b in TRUTH]
    tables = [strength * np.outer(scale, scale) for strength in TRUTH.values()]
    model = fastmix.MarkovRandomField.from_tables(0.4 * rng.standard_normal((len(items), 3)), edges, tables)
    states = fastmix.draw_exact(model, num_draws=num_people, seed=seed)
    columns = {item: pd.Categorical.from_codes(states[:, i], ANSWERS) for i, item in enumerate(items)}
    return pd.DataFrame(columns)


def strengths(model: fastmix.MarkovRandomField) -> dict[tuple[int, int], float]:
    """How much the answers to the two questions of every edge go together: the slope of its table."""
    scale = np.array([-1.0, 0.0, 1.0])
    return {(i, j): float(scale @ model.table(i, j) @ scale) / 4 for i, j in model.edges.tolist()}


def draw_network(model: fastmix.MarkovRandomField, found_again: np.ndarray, path: Path) -> None:
    """The network in a circle: blue goes together, red against each other, thin lines are not found in every half."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = model.variable_names or ()
    angles = np.pi / 2 - 2 * np.pi * (np.arange(len(names)) + 0.5) / len(names)
    x, y = np.cos(angles), np.sin(angles)
    figure, axes = plt.subplots(figsize=(7.5, 6.5))
    for (i, j), strength in strengths(model).items():
        axes.plot(
            x[[i, j]], y[[i, j]], color="tab:blue" if strength > 0 else "tab:red", zorder=1,
            alpha=0.25 + 0.75 * found_again[i, j], linewidth=1 + 7 * abs(strength), solid_capstyle="round",
        )  # fmt: skip
    items = iter(range(len(names)))
    for color, (topic, questions) in zip(("tab:orange", "tab:green", "tab:purple"), TOPICS.items(), strict=True):
        own = [next(items) for _ in questions]
        axes.scatter(x[own], y[own], s=220, c=color, edgecolor="white", zorder=2, label=topic)
    axes.legend(loc="upper right", frameon=False)
    for i, name in enumerate(names):
        axes.text(1.13 * x[i], 1.1 * y[i], name, ha="left" if x[i] > 0 else "right", va="center")
    axes.set(xlim=(-1.9, 1.9), ylim=(-1.3, 1.3), title="Questions that go together (blue) or against each other (red)")
    axes.axis("off")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "survey.svg")
    answers = draw_answers(4000, seed=1)
    train, valid, test = answers[:2000], answers[2000:3000], answers[3000:]
    again = stability(train, l1=0.06, num_subsamples=20, seed=0)
    edges = np.argwhere(np.triu(again) >= 0.8)
    print(f"stability  {len(edges)} of 66 pairs are edges in at least 16 of 20 random halves of the answers")
    result = fastmix.learn(train, edges=edges, validation=valid, seed=0)
    model = result.model
    print(f"learn      {result.moments}, status {result.status}, moment error {result.moment_error:.4f}")
    names = model.variable_names or ()
    pairs = {frozenset((names[i], names[j])) for i, j in model.edges.tolist()}
    true = {frozenset(pair) for pair in TRUTH}
    print(f"truth      {len(pairs & true)} of {len(true)} edges found, {len(pairs - true)} others")
    whole = fastmix.score(model, test)
    alone = fastmix.score(fastmix.learn(train, edges=np.zeros((0, 2), dtype=int)).model, test)
    print(f"score      {whole.log_likelihood:.3f} nats per person, {alone.log_likelihood:.3f} without any edge")
    for answer in ANSWERS:
        tired = fastmix.infer(model, evidence={"hours are long": answer, "street is noisy": answer})
        share = tired.marginal("sleep well")[2]
        print(f"infer      long hours and a noisy street, {answer}: {100 * share:.0f} % sleep well")
    draw_network(model, again, path)
    print(f"picture    {path}")


if __name__ == "__main__":
    main()
