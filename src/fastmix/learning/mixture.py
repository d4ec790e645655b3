"""Mixtures of trees: a hidden variable of many states joined to all columns, learnt by expectation maximization.

Given the component, the columns form a tree, the same in all components with tables of their own (Meila and Jordan,
"Learning with mixtures of trees", JMLR 2000), or are independent. All of it is exact: sums over the hidden variable and
over missing values, and the normalizer. The likelihood has many maxima. Components begin at rows of the data, which
breaks their symmetry; mixtures of 1, 2, 4, .. components are tried as long as validation data gain by them, and of
every one the iteration that these like best is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_count, check_flag, check_positive, describe, keep_checked
from fastmix._clock import Ending
from fastmix._context import Context
from fastmix._memory import check_memory
from fastmix.learning.dataset import MISSING, Dataset
from fastmix.learning.independent import observed_shares
from fastmix.learning.likelihood import Likelihood
from fastmix.learning.mixture_trees import best_parents
from fastmix.learning.objective import LearningObjective
from fastmix.learning.problem import Problem
from fastmix.learning.result import LearnResult
from fastmix.learning.tree_mixture import MixtureRows, TreeMixture, tables_of
from fastmix.learning.tuning import (
    BYTES_PER_MIXTURE_ENTRY,
    CENTER_SHARE,
    COMPONENT_SMOOTHING,
    FIRST_TREES,
    HELD_OUT_SHARE,
    ITERATIONS_PER_SCORE,
    ITERATIONS_PER_TREE,
    MAX_CHOSEN_COMPONENTS,
    MAX_COMPONENTS,
    MAX_EM_ITERATIONS,
    MAX_MIXTURE_COMPONENTS,
    MIN_EM_GAIN,
    MIN_SIZE_GAIN,
    NUM_STARTS,
    PAIRS_TIME_SHARE,
    SCORES_WITHOUT_GAIN,
    SIZES_WITHOUT_GAIN,
    START_ITERATIONS,
)
from fastmix.results import Status

__all__ = ["Mixture", "better_of_both", "check_mixture", "learn_mixture", "mixture_by_name"]


@dataclass(frozen=True)
class Mixture:
    """A hidden variable of many states that is joined to all columns: a mixture of trees, for ``learn(hidden=..)``.

    Attributes
    ----------
    num_components : int or "auto"
        States of the hidden variable. ``auto`` doubles them from 1 on while the validation data, or a tenth of the rows
        that is held out, gain.
    tree : bool
        Whether the columns form a tree given the component, the best one for all components together; else they are
        independent (latent classes).
    smoothing : float
        Rows that are added to every distribution of every component, spread as those of all components together are.

    Examples
    --------
    >>> import fastmix
    >>> rng = np.random.default_rng(0)
    >>> kind = rng.integers(0, 3, size=(600, 1))
    >>> rows = (rng.random((600, 8)) < np.array([0.1, 0.5, 0.9])[kind]).astype(int)
    >>> result = fastmix.learn(rows, hidden=fastmix.Mixture(num_components=3, tree=False), seed=0)
    >>> result.model.num_states[-1], str(result.status), result.moments
    (np.int64(3), 'ok', 'expectation maximization')
    """

    num_components: int | Literal["auto"] = "auto"
    tree: bool = True
    smoothing: float = 1.0

    def __post_init__(self) -> None:
        k = self.num_components
        if isinstance(k, str):
            if k != "auto":
                raise ValueError(f"num_components must be a number of at least 1 or 'auto', got {describe(k)}")
        else:
            k = check_count("num_components", k, least=1, most=MAX_MIXTURE_COMPONENTS)
        keep_checked(
            self,
            num_components=k,
            tree=check_flag("tree", self.tree),
            smoothing=check_positive("smoothing", self.smoothing),
        )

    def __str__(self) -> str:
        """How the command line names it."""
        kind = "mixture" if self.tree else "classes"
        return kind if isinstance(self.num_components, str) else f"{kind}:{self.num_components}"


def mixture_by_name(text: str) -> Mixture:
    """The mixture that a text such as ``mixture``, ``mixture:16`` or ``classes:4`` names.

    Examples
    --------
    >>> mixture_by_name("classes:4")
    Mixture(num_components=4, tree=False, smoothing=1.0)
    """
    kind, colon, number = text.partition(":")
    if kind not in ("mixture", "classes") or (colon and not number.isdecimal()):
        raise ValueError(f"must be a number, auto, or a mixture such as mixture:16 or classes:4, got {text!r}")
    return Mixture(int(number) if colon else "auto", tree=kind == "mixture")


def check_mixture(
    hidden: Any, edges: Any, objective: LearningObjective, within: Any, validation: Any
) -> Mixture | None:
    """The mixture that ``hidden`` asks for, alone or beside other models, None where it is a number.

    Raises
    ------
    ValueError
        If it is another word, or does not go together with the other arguments.
    """
    if isinstance(hidden, str) and hidden != "auto":
        raise ValueError(f"hidden must be a number, a Mixture or 'auto', got {describe(hidden)}")
    if not isinstance(hidden, str | Mixture):
        return None
    if not isinstance(objective, Likelihood):
        raise ValueError(f"hidden={str(hidden)!r} needs the objective likelihood, got {objective}")
    if isinstance(hidden, str):
        if validation is None:
            raise ValueError("hidden='auto' is chosen on validation data: give validation=")
        return Mixture()
    if within is not None:
        raise ValueError("hidden must be a number with within=, of which mixtures know nothing")
    if not isinstance(edges, str) or edges not in ("auto", "complete"):
        raise ValueError("edges must be left out with hidden=Mixture(), which has a tree of its own or none")
    return hidden


def better_of_both(problem: Problem, learn_pairs: Callable[[Problem], LearnResult]) -> LearnResult:
    """A model without hidden variables, learnt in a part of the time, or a mixture, as the validation data like it.

    A model that is not trusted comes back only where the mixture was not there in time.
    """
    pairs_context = problem.context.within("pairs", problem.context.clock.part(PAIRS_TIME_SHARE))
    pairs = learn_pairs(replace(problem, context=pairs_context))
    if pairs.status is Status.INTERRUPTED:
        return pairs
    search = _Search(problem, Mixture())
    with Ending() as ending:
        search.run()
    if search.best is None:
        return pairs
    mixture = search.result(ending)
    scores = {"without": pairs.validation_log_likelihood, "mixture": mixture.validation_log_likelihood}
    tried = [{"hidden": name, "validation_log_likelihood": value} for name, value in scores.items()]
    without, among = scores.values()
    if pairs.status is not Status.OK or without is None or (among is not None and without < among):
        return replace(mixture, stats={**mixture.stats, "tried_hidden": tried})
    return replace(pairs, stats={**pairs.stats, "tried_hidden": tried})


def learn_mixture(problem: Problem, wanted: Mixture) -> LearnResult:
    """The mixture that was asked for; where the time or Ctrl-C ends the work, the best one by then."""
    search = _Search(problem, wanted)
    with Ending() as ending:
        search.run()
    if search.best is None:
        problem.context.raise_nothing(ending.by)
    assert search.best is not None
    return search.result(ending)


@dataclass(frozen=True, eq=False)
class _Fit:
    """A mixture, and how well it does: mean log-likelihoods of the rows, and of validation data if there are some."""

    mixture: TreeMixture
    value: float
    validation: float | None
    num_iterations: int

    @property
    def quality(self) -> float:
        """What mixtures are compared by."""
        return self.value if self.validation is None else self.validation


class _Search:
    """Mixtures of more and more components, and the best of them so far."""

    def __init__(self, problem: Problem, wanted: Mixture) -> None:
        self.problem = problem
        self.wanted = wanted
        self.context: Context = problem.context.within("mixture")
        self.best: _Fit | None = None
        self.tried: list[dict[str, Any]] = []
        self.num_iterations = 0
        data = problem.data
        self.judges = None if problem.validation is None else MixtureRows.of(problem.validation)
        if self.judges is None and wanted.num_components == "auto":
            data, held_out = _split(data, self.context.rng("held out"))
            self.judges = MixtureRows.of(held_out)
        self.data = data
        self.rows = MixtureRows.of(data)

    def run(self) -> None:
        """Try sizes one after the other; with held-out rows, fit the best size to all rows in the end."""
        if self.wanted.num_components != "auto":
            self.best = self._climb(int(self.wanted.num_components))
            return
        late = 0
        size = 1
        while late < SIZES_WITHOUT_GAIN and size <= min(MAX_COMPONENTS, max(1, len(self.rows.states) // 2)):
            before = self.best
            fit = self._climb(size)
            gain = math.inf if before is None else fit.quality - before.quality
            late = 0 if gain > MIN_SIZE_GAIN else late + 1
            size *= 2
        if self.problem.validation is None and self.best is not None:
            best = self.best
            self.judges = None
            self.rows = MixtureRows.of(self.problem.data)
            self.data = self.problem.data
            again = self._climb(best.mixture.num_components, most=best.num_iterations)
            self.best = replace(again, validation=best.validation)

    def _climb(self, size: int, most: int | None = None) -> _Fit:
        """The best mixture of so many components on the way of expectation maximization; the best of all is kept."""
        clock = self.context.clock
        mixture = self._best_start(size)
        limit = most or self.problem.max_iter or MAX_EM_ITERATIONS
        best: _Fit | None = None
        before = -math.inf
        late = 0
        for iteration in range(1, limit + 1):
            mixture, value = self._step(mixture, iteration)
            self.num_iterations += 1
            clock.report(self.num_iterations, None, "iterations", details={"value": -value})
            is_drawn = self._is_tree_due(mixture, iteration) and bool(self.rows.gaps.any())
            has_settled = value - before < MIN_EM_GAIN * abs(value) and iteration > FIRST_TREES[-1] and not is_drawn
            before = -math.inf if is_drawn else value  # of drawn values: no iteration can be compared with it
            if not (has_settled or iteration == limit or iteration % ITERATIONS_PER_SCORE == 0):
                continue
            fit = self._judged(mixture, value, iteration)
            if best is None or fit.quality > best.quality:
                best = fit
                late = 0
            else:
                late += 1
            if self.best is None or best.quality > self.best.quality:
                self.best = best
            if has_settled or (late >= SCORES_WITHOUT_GAIN and iteration > FIRST_TREES[-1]):
                break
        assert best is not None
        self.tried.append({"num_components": size, "validation_log_likelihood": best.validation})
        return best

    def _judged(self, mixture: TreeMixture, value: float, iteration: int) -> _Fit:
        """A mixture with its score on the validation data; ``value`` is that of the rows, an iteration before."""
        validation = None
        if self.judges is not None:
            validation = float(self.judges.weights @ mixture.row_logs(self.judges, self.context.clock))
        return _Fit(mixture, value, validation, iteration)

    def _step(self, mixture: TreeMixture, iteration: int) -> tuple[TreeMixture, float]:
        """An iteration: expected counts, at times the best tree for them, and the tables that follow.

        Also the mean log-likelihood before it; of completed rows where the tree is looked for and values are missing.
        """
        clock = self.context.clock
        rows = self.rows
        parents = None
        if self._is_tree_due(mixture, iteration):
            rng = self.context.rng("completed", mixture.num_components, iteration)
            rows = mixture.completed(rows, rng, clock)
            parents = best_parents(mixture, rows, self.data.num_rows, clock)
        value, totals, counts = mixture.expected_counts(rows, clock, parents)
        tree = mixture.parents if parents is None else parents
        counts *= self.data.num_rows
        shares = totals * self.data.num_rows + COMPONENT_SMOOTHING
        tables = tables_of(counts, mixture.num_states, tree, self.wanted.smoothing)
        return TreeMixture(mixture.num_states, tree, shares / shares.sum(), tables), value

    def _is_tree_due(self, mixture: TreeMixture, iteration: int) -> bool:
        """Whether an iteration looks for the best tree; one component knows it at once where no value is missing."""
        if not self.wanted.tree or len(mixture.num_states) < 2:
            return False
        if mixture.num_components == 1 and not self.rows.gaps.any():
            return iteration == 1
        return iteration in FIRST_TREES or (iteration > 0 and iteration % ITERATIONS_PER_TREE == 0)

    def _best_start(self, size: int) -> TreeMixture:
        """The best of some starts, each followed by a few iterations; many components need no choice."""
        if size == 1 or size > MAX_CHOSEN_COMPONENTS:
            return self._start(size, 0)
        best = None
        highest = -math.inf
        for number in range(NUM_STARTS):
            mixture = self._start(size, number)
            for _ in range(START_ITERATIONS):
                mixture, value = self._step(mixture, 0)
            if value > highest:
                highest = value
                best = mixture
        assert best is not None
        return best

    def _start(self, size: int, number: int) -> TreeMixture:
        """Independent components around rows that are drawn, so that they differ; one component has the shares."""
        num_states = self.data.num_states
        n = len(num_states)
        num_entries = float(num_states.sum() * num_states.max(initial=1)) * size
        check_memory(
            BYTES_PER_MIXTURE_ENTRY * num_entries, f"a mixture of {size:,} components", "take fewer num_components"
        )
        shares, _ = observed_shares(self.data)
        uniform = 1.0 / np.repeat(num_states, num_states)
        weight = 1.0 / (1.0 + self.data.num_rows)
        tables = np.repeat(((1.0 - weight) * shares + weight * uniform)[:, None], size, axis=1)
        if size > 1:
            rng = self.context.rng("components", size, number)
            centers = rng.choice(len(self.rows.states), size, p=self.rows.weights / self.rows.weights.sum())
            for k, row in enumerate(self.rows.states[centers]):
                _move_to_row(tables[:, k], row, num_states)
        return TreeMixture(num_states, np.full(n, -1, dtype=np.int64), np.full(size, 1.0 / size), tables)

    def result(self, ending: Ending) -> LearnResult:
        """The best mixture as a result of learning."""
        assert self.best is not None
        best = self.best
        status = Status.OK
        if ending.by != "done":
            status = Status.INTERRUPTED if ending.interrupted else Status.NOT_CONVERGED
        stats = {
            "stopped_by": ending.by,
            "num_iterations": self.num_iterations,
            "num_components": best.mixture.num_components,
            "tried_components": self.tried,
        }
        return LearnResult(
            model=best.mixture.to_model(self.problem.data),
            objective="likelihood",
            moments="expectation maximization",
            status=status,
            value=-best.value,
            ridge=0.0,
            l1=0.0,
            within=None,
            norms={"spectral": math.nan, "inf": math.nan},
            moment_error=None,
            bias_bound=None,
            validation_log_likelihood=best.validation,
            num_rows=self.problem.data.num_rows,
            stats=stats,
        )


def _move_to_row(table: FloatArray, row: IntArray, num_states: IntArray) -> None:
    """Let the distributions of all variables (S,), in place, lean to the states that a row has."""
    starts = np.concatenate([[0], np.cumsum(num_states)])[:-1]
    seen = row != MISSING
    entries = np.repeat(seen, num_states)
    table[entries] *= 1.0 - CENTER_SHARE
    table[(starts + row)[seen]] += CENTER_SHARE


def _split(data: Dataset, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    """The data without some rows that are held out, and these; all of them twice where there is but one row."""
    count = len(data.states)
    if count < 2:
        return data, data
    order = rng.permutation(count)
    num_held_out = max(1, int(HELD_OUT_SHARE * count))
    return _rows_of(data, order[num_held_out:]), _rows_of(data, order[:num_held_out])


def _rows_of(data: Dataset, rows: IntArray) -> Dataset:
    """Some rows of the data."""
    weights = data.weights[rows]
    share = float(weights.sum())
    num_rows = max(1, round(share * data.num_rows))
    return replace(data, states=data.states[rows], weights=weights / share, num_rows=num_rows)
