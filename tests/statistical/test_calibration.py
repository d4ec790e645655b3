"""Stated errors against true ones, over thousands of certified random models; run by ``make verify``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

from fastmix import MarkovRandomField, certify
from fastmix.exact.enumeration import enumerate_model
from fastmix.sampling.sample import sample
from fastmix.theory.intervals import bernstein_half_width, rigorous_intervals

pytestmark = pytest.mark.slow

NUM_MODELS = 2000
FALSE_ALARM = 1e-6  # of every bound below
LEVEL = 0.95


def certified_models(seed: int, count: int) -> Iterator[tuple[MarkovRandomField, float]]:
    """Models of 3 to 6 variables with 2 or 3 states, random edges and tables, and their dependency norms, below 1.

    The strength of the tables is drawn as well, so that the norms fill the range from weak to nearly uncertified.
    """
    rng = np.random.default_rng(seed)
    while count:
        n = int(rng.integers(3, 7))
        counts = rng.integers(2, 4, size=n).tolist()
        pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.5]
        scale = rng.uniform(0.1, 1.2)
        tables = [scale * rng.normal(size=(counts[i], counts[j])) for i, j in pairs]
        model = MarkovRandomField.from_tables([rng.normal(size=k) for k in counts], pairs, tables)
        norm = certify(model, accuracy=0.01).norm_value
        if pairs and norm < 1.0:
            count -= 1
            yield model, norm


def one_entry(rng: np.random.Generator, exact: np.ndarray) -> int:
    """One state of one variable for each model: answers for different models are independent, within one they are not.

    Rare states are left out: the average of a few events is not normal, which a standard error alone cannot tell.
    """
    return int(rng.choice(np.flatnonzero((exact > 0.02) & (exact < 0.98))))


def failures_are_few(failures: int, level: float) -> bool:
    return failures <= stats.binom.isf(FALSE_ALARM, NUM_MODELS, 1.0 - level)


def failures_are_many(failures: int, level: float) -> bool:
    return failures >= stats.binom.ppf(FALSE_ALARM, NUM_MODELS, 1.0 - level)


def test_standard_errors_are_calibrated(record_property, tell):
    rng = np.random.default_rng(1)
    ways = [{}, {"estimator": "counts"}, {"schedule": "random"}]
    z, norms = np.empty(NUM_MODELS), np.empty(NUM_MODELS)
    for k, (model, norm) in enumerate(certified_models(101, NUM_MODELS)):
        exact = enumerate_model(model).node_marginals
        e = one_entry(rng, exact)
        result = sample(model, num_chains=16, num_sweeps=6400, seed=k, num_threads=1, **ways[k % 3])
        z[k], norms[k] = (result.node_marginals[e] - exact[e]) / result.std_error[e], norm
    outside = int((np.abs(z) > stats.norm.isf((1 - LEVEL) / 2)).sum())
    mean_square = float((z**2).mean())
    record_property("coverage", 1 - outside / NUM_MODELS)
    tell("gibbs, certified", "16 chains, 6400 sweeps", f"coverage {1 - outside / NUM_MODELS:.3f}")
    record_property("mean_square", mean_square)
    record_property("median_norm", float(np.median(norms)))
    print(f"\ncoverage {1 - outside / NUM_MODELS:.4f}, mean square {mean_square:.3f}, mean {z.mean():.3f}")
    assert norms.max() > 0.95
    # Binomial with 2000 trials, both sides at 1e-6: from 2.8 % to 7.5 % outside.
    assert failures_are_few(outside, LEVEL)
    assert failures_are_many(outside, LEVEL)
    # More power for the scale: of a known error the squares would be chi-square with 2000 degrees of freedom, at most
    # 1.16 on average. The errors stated are the larger of two estimates, and a bit more for what was never met: 0.84 on
    # average, and not below 0.75. For the bias: their mean is normal with standard deviation 2000^-1/2.
    assert 0.75 * NUM_MODELS < mean_square * NUM_MODELS < stats.chi2.isf(FALSE_ALARM, NUM_MODELS)
    assert abs(z.mean()) * np.sqrt(NUM_MODELS) < stats.norm.isf(FALSE_ALARM / 2)
    # Sabotaged: errors stated a quarter too small or too large.
    assert not failures_are_few(int((np.abs(z) * 1.25 > 1.96).sum()), LEVEL)
    assert not failures_are_many(int((np.abs(z) / 1.25 > 1.96).sum()), LEVEL)


@pytest.mark.parametrize("num_chains", [1, 2, 4])
def test_standard_errors_of_few_chains(num_chains, tell):
    rng = np.random.default_rng(4)
    covered = []
    for k, (model, _) in enumerate(certified_models(404, 800)):
        exact = enumerate_model(model).node_marginals
        e = one_entry(rng, exact)
        result = sample(model, num_chains=num_chains, num_sweeps=2000, seed=k, num_threads=1)
        covered.append(abs(result.node_marginals[e] - exact[e]) <= 1.96 * result.std_error[e])
    tell("gibbs, certified", f"{num_chains} chains, 2000 sweeps", f"coverage {np.mean(covered):.3f}")
    assert np.mean(covered) >= 0.93


def test_standard_errors_of_short_random_schedules(record_property, tell):
    # Short runs: batches of a few sweeps, as systematic sweeps may have, would give coverages of 92 to 94 %.
    rng = np.random.default_rng(3)
    lengths = [(16, 400), (16, 1000), (64, 1000)]
    z = np.empty((NUM_MODELS, len(lengths)))
    for k, (model, _) in enumerate(certified_models(303, NUM_MODELS)):
        exact = enumerate_model(model).node_marginals
        e = one_entry(rng, exact)
        for way, (num_chains, num_sweeps) in enumerate(lengths):
            result = sample(
                model, num_chains=num_chains, num_sweeps=num_sweeps, schedule="random", seed=3 * k + way, num_threads=1
            )
            z[k, way] = (result.node_marginals[e] - exact[e]) / result.std_error[e]
    coverage, mean_square = float((np.abs(z) < stats.norm.isf((1 - LEVEL) / 2)).mean()), float((z**2).mean())
    record_property("coverage", coverage)
    tell("gibbs, certified, random schedule", "short runs", f"coverage {coverage:.3f}")
    record_property("mean_square", mean_square)
    print(f"\ncoverage {coverage:.4f}, mean square {mean_square:.3f}")
    assert coverage >= 0.945
    # The squares are chi-square with 6000 degrees of freedom, at most 1.09 on average; short batches gave 1.1.
    assert mean_square * z.size < stats.chi2.isf(FALSE_ALARM, z.size)


def test_rigorous_intervals_cover(record_property, tell):
    rng = np.random.default_rng(2)
    missed = dict.fromkeys(("stated", "all at once", "bernstein", "no bias"), 0)
    widths, vacuous = [], 0
    for k, (model, _) in enumerate(certified_models(202, NUM_MODELS)):
        exact = enumerate_model(model).node_marginals
        e = one_entry(rng, exact)
        # The worst start that is easily found: every variable in its least likely state. A few sweeps later the chains
        # still remember it.
        worst = np.array([v.argmin() for v in np.split(exact, model.unary_offsets[1:-1])])
        start = np.tile(worst, (400, 1))
        options = {"num_chains": 400, "num_sweeps": 4, "seed": k, "num_threads": 1, "start": start}
        result = sample(model, burn_in=5, **options)
        intervals = result.intervals(confidence=LEVEL)
        missed["stated"] += not intervals.lower[e] <= exact[e] <= intervals.upper[e]
        widths.append(float(intervals.upper[e] - intervals.lower[e]))
        vacuous += bool(intervals.vacuous[e])
        both = result.intervals(confidence=LEVEL, simultaneous=True)
        missed["all at once"] += not ((both.lower <= exact) & (exact <= both.upper)).all()
        # Without the bias the deviation of the chains alone is tested, after sweeps enough to forget the start.
        mixed = sample(model, burn_in=60, **options)
        half = bernstein_half_width(mixed.chain_variances, 400, failure=1 - LEVEL)
        missed["bernstein"] += not abs(mixed.node_marginals[e] - exact[e]) <= half[e]
        # Sabotaged: the bias left out though the chains have just begun.
        begun = sample(model, burn_in=0, **options)
        wrong = rigorous_intervals(
            model, begun.node_marginals, num_chains=400, bias=0.0, variances=begun.chain_variances, confidence=LEVEL
        )
        missed["no bias"] += not wrong.lower[e] <= exact[e] <= wrong.upper[e]
    for name, count in missed.items():
        record_property(f"coverage {name}", 1 - count / NUM_MODELS)
    record_property("median width", float(np.median(widths)))
    tell("proven intervals", "400 chains", f"coverage {1 - missed['stated'] / NUM_MODELS:.4f}")
    coverage = {name: 1 - count / NUM_MODELS for name, count in missed.items()}
    print(f"\ncoverage {coverage}, median width {np.median(widths):.3f}, vacuous {vacuous}")
    for name in ("stated", "all at once", "bernstein"):
        assert failures_are_few(missed[name], LEVEL), (name, missed[name])
    assert not failures_are_few(missed["no bias"], LEVEL)
    # They also say something: half of them are narrower than 0.15, from 400 short chains.
    assert np.median(widths) < 0.15
