"""What a seed, a time limit and Ctrl-C do, and what a result says of its call, is the same for every verb."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fastmix
from contexts import context_of
from fastmix import (
    ChainResult,
    FastmixError,
    Interrupted,
    MarkovRandomField,
    Progress,
    Result,
    ReversedKL,
    Status,
    infer,
)
from fastmix._clock import Clock
from fastmix._context import DEFAULT_SECONDS, Context, open_context, stream_seed
from fastmix.denoising import denoise
from fastmix.errors import NotConvergedError, ResourceError
from fastmix.graphs import complete_edges
from fastmix.instances import ising_grid
from fastmix.learning import persistent
from fastmix.model.network import BayesianNetwork

LITTLE = 1500.0  # bytes, with which nothing is exact
STRONG = ising_grid(4, 4, coupling_max=1.5, seed=0)
WEAK = ising_grid(3, 3, coupling_max=0.4, attractive=True, seed=1)
DENSE = MarkovRandomField.ising(complete_edges(4), coupling=0.7)
FRUSTRATED = MarkovRandomField.ising(complete_edges(7), coupling=-1.0)
#: Too dense for exact parts: a search does not prove what it finds.
GLASS = MarkovRandomField.ising(complete_edges(60), np.random.default_rng(0).normal(size=1770))
ROWS = np.random.default_rng(0).integers(0, 2, (40, 4))
#: All pairs of their columns: a graph that is given does not give way to a tree.
PAIRS = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
PICTURE = np.kron(np.eye(2), np.ones((4, 4)))
NOISY = np.clip(PICTURE + np.random.default_rng(1).normal(scale=0.2, size=PICTURE.shape), 0.0, 1.0)
NETWORK = BayesianNetwork(
    ["rain", "wet"], [["no", "yes"]] * 2, [[], [0]], [[0.8, 0.2], [[0.9, 0.1], [0.3, 0.7]]]
)  # fmt: skip

Call = Callable[..., Result]


def of(function: Callable[..., Any], *data: Any, **options: Any) -> Call:
    """A call of a verb that waits for what all verbs take: a seed, a time limit, a listener."""
    return lambda **call: function(*data, **{"progress": None, **options, **call})


# Calls that end by themselves, with random numbers: what they give follows from the seed.
DRAWING: dict[str, Call] = {
    "infer, auto": of(infer, STRONG, memory_limit=LITTLE),
    "infer, auto with log Z": of(infer, STRONG, memory_limit=LITTLE, log_z=True),
    "infer, gibbs": of(infer, STRONG, method="gibbs", num_chains=4, num_sweeps=100),
    "infer, swendsen-wang": of(infer, WEAK, method="swendsen-wang", num_chains=4, num_sweeps=100),
    "infer, tempered": of(infer, STRONG, method="tempered", num_sweeps=100),
    "infer, projected": of(infer, STRONG, method="projected", num_sweeps=100),
    "infer, annealed": of(infer, WEAK, method="annealed", num_steps=10),
    "infer, perfect": of(infer, WEAK, method="perfect", num_draws=30),
    "infer, mean-field": of(infer, STRONG, method="mean-field", num_starts=3),
    "infer, with a bracket": of(infer, STRONG, method="gibbs", num_sweeps=100, bracket=True),
    "sample": of(fastmix.sample, STRONG, num_chains=4, num_sweeps=100, num_draws=5),
    "sample, two schedules": of(
        fastmix.sample, STRONG, num_chains=3, num_sweeps=100, schedule="random-burn-in", burn_in=10
    ),
    "temper": of(fastmix.temper, STRONG, num_sweeps=100),
    "anneal": of(fastmix.anneal, WEAK, num_steps=10),
    "mean_field": of(fastmix.mean_field, STRONG, num_starts=3),
    "project": of(fastmix.project, STRONG, norm_bound=0.9, divergence=ReversedKL(pool_size=50)),
    "learn": of(fastmix.learn, ROWS, edges=PAIRS, moments="sampled", num_chains=64, max_iter=5, tol=10.0),
    "learn, tempered": of(fastmix.learn, ROWS, edges=PAIRS, moments="tempered", num_chains=64, max_iter=5, tol=10.0),
    "learn, hidden": of(fastmix.learn, ROWS, moments="sampled", hidden=2, num_chains=64, max_iter=3),
    "learn, several": of(
        fastmix.learn,
        ROWS[:20],
        edges=PAIRS,
        validation=ROWS[:20],
        ridge="auto",
        moments="sampled",
        num_chains=64,
        max_iter=3,
    ),
    "score": of(fastmix.score, STRONG, np.zeros((1, 16), dtype=int), method="annealing", num_chains=64, tol=0.1),
    "denoise": of(denoise, NOISY),
    "denoise, noise added": of(denoise, PICTURE, noise=0.3, method="gibbs", num_sweeps=50),
    "draw_exact": of(fastmix.draw_exact, STRONG, num_draws=5),
    "perfect_sample": of(fastmix.perfect_sample, WEAK, num_draws=20),
}
# Calls that go on until the time is over, or look at their speed.
ENDLESS: dict[str, Call] = {
    "bracket": of(fastmix.bracket, DENSE, memory_limit=LITTLE, time_limit=5.0),
    "bracket, with draws": of(
        fastmix.bracket, STRONG, memory_limit=LITTLE, confidence=0.95, num_draws=50, time_limit=0.4
    ),
    "most_probable": of(fastmix.most_probable, GLASS, method="search", time_limit=0.4),
    "infer, auto with a trial": of(
        infer, ising_grid(5, 5, coupling_max=6.0, seed=0), memory_limit=LITTLE, time_limit=0.4
    ),
    "sample, for a time": of(fastmix.sample, STRONG, time_limit=0.2),
    "temper, for a time": of(fastmix.temper, STRONG, time_limit=0.4),
}


def ancestral(*, seed: int | None = None, **_: Any) -> Result:
    """Draws of a network: the one verb that takes nothing but a seed."""
    return fastmix.ancestral_sample(NETWORK, num_draws=20, seed=seed)


def warm_nothing(**_: Any) -> Result:
    """The answer of warm_up where there is nothing to compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastmix.warming.PARTS", {})
        return fastmix.warm_up(progress=None)


def without_seed(call: Call) -> Call:
    """A call of a verb that draws nothing."""
    return lambda seed=None, **rest: call(**rest)


SEEDED: dict[str, Call] = {**DRAWING, **ENDLESS, "ancestral_sample": ancestral}
LIMITED: dict[str, Call] = {
    **DRAWING,
    **ENDLESS,
    "infer, exact": of(infer, WEAK, method="exact"),
    "infer, loopy-bp": of(infer, STRONG, method="loopy-bp"),
    "loopy_bp": without_seed(of(fastmix.loopy_bp, STRONG)),
    "compare": of(fastmix.compare, WEAK, methods=["mean-field", "loopy-bp"]),
    "bracket, exact": of(fastmix.bracket, WEAK),
    "most_probable, exact": of(fastmix.most_probable, WEAK),
    "certify": without_seed(of(fastmix.certify, WEAK, accuracy=0.01)),
    "project, euclidean": of(fastmix.project, STRONG, norm_bound=0.9),
    "learn, exact": of(fastmix.learn, ROWS, edges=PAIRS),
    "score, exact": of(fastmix.score, WEAK, np.zeros((1, 9), dtype=int)),
}
ALL: dict[str, Call] = {**LIMITED, "ancestral_sample": ancestral, "warm_up": warm_nothing}


def numbers_of(result: Result) -> list[bytes]:
    """The bits of a model and of all arrays and numbers of its result; what is measured is left out."""
    values = [getattr(result, f.name) for f in fields(result)]
    arrays = [result.model.parameters, *[value for value in values if isinstance(value, np.ndarray | float)]]
    return [np.asarray(array).tobytes() for array in arrays]


# -- names and seeds ------------------------------------------------------------------------------------------------

words = st.text(st.characters(categories=["L", "N", "P", "Z"]), max_size=3)
names = st.lists(words | st.integers(-3, 30), max_size=3).map(tuple)


@given(seed=st.integers(0, 2**63 - 1), one=names, other=names)
def test_different_names_have_different_seeds(seed: int, one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assume(one != other)
    seeds = stream_seed(seed, *one), stream_seed(seed, *other)
    assert seeds[0] != seeds[1]
    assert all(0 <= found < 2**63 for found in seeds)
    assert seeds[0] == stream_seed(seed, *one)
    assert seeds[0] != stream_seed(seed + 1, *one)


def test_order_type_and_division_of_names_matter() -> None:
    kinds = [
        (), ("",), ("", ""), ("a",), ("b",), ("a", "b"), ("b", "a"), ("ab",), ("a b",), ("a", 1), ("a", "1"), (1, "a"),
        ("a1",), (1,), ("1",), (11,), (1, 1), (0,), (-1,), (True,), ("int 1",), ("str a",), ("a", ""), ("", "a"),
    ]  # fmt: skip
    assert len({stream_seed(5, *kind) for kind in kinds}) == len(kinds)


def test_streams_of_a_part_are_its_own() -> None:
    whole = context_of(3)
    contexts = [whole, whole.within("a"), whole.within("b"), whole.within("a").within("b")]
    assert len({context.seed_of("x") for context in contexts}) == 4
    assert whole.seed_of("x") == context_of(3).seed_of("x")
    assert whole.seed_of("x") != context_of(4).seed_of("x")
    assert whole.rng("x").random() == np.random.default_rng(whole.seed_of("x")).random()
    assert whole.streams is contexts[3].streams  # so that the provenance knows that random numbers were drawn
    assert len(whole.streams) == 4


# -- the streams of a call ------------------------------------------------------------------------------------------

Asked = list[tuple[tuple[int, str, tuple[Any, ...]], int]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The streams that were asked for, by the seed of the call, the part and the name, with their seeds."""
    found: Asked = []
    plain = Context.seed_of

    def noted(context: Context, *name: str | int) -> int:
        seed = plain(context, *name)
        found.append(((context.seed, context.scope, name), seed))
        return seed

    monkeypatch.setattr(Context, "seed_of", noted)
    return found


def check_streams(asked: Asked) -> None:
    """An AssertionError where a stream was asked for twice, or two of them are one."""
    counts = Counter(name for name, _ in asked)
    assert [name for name, count in counts.items() if count > 1] == []
    assert len({seed for _, seed in asked}) == len(asked)


@pytest.mark.parametrize("name", SEEDED)
def test_no_stream_is_drawn_from_twice(name: str, asked: Asked) -> None:
    result = SEEDED[name](seed=1)
    assert asked
    check_streams(asked)
    assert result.seed == 1


def test_a_stream_that_is_drawn_from_twice_is_found(asked: Asked) -> None:
    context = context_of(1)
    context.rng("a")
    context.within("b").rng("a")
    check_streams(asked)
    context.seed_of("a")
    with pytest.raises(AssertionError):
        check_streams(asked)


def test_ladders_of_as_many_rungs_as_before_draw_other_numbers(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning makes its chains anew whenever the number of rungs changes, and it may change back."""
    sizes = iter([3, 16])

    def respace(positions: Any, *_: Any) -> tuple[Any, Any]:
        size = next(sizes, len(positions))
        return np.linspace(0.0, 1.0, size), np.minimum(np.arange(size), len(positions) - 1)

    monkeypatch.setattr(persistent, "respace", respace)
    DRAWING["learn, tempered"](seed=1)
    assert next(sizes, None) is None
    check_streams(asked)


# -- seeds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*DRAWING, "ancestral_sample"])
def test_the_seed_makes_the_result(name: str) -> None:
    one, same, other = (SEEDED[name](seed=seed) for seed in (1, 1, 2))
    assert numbers_of(one) == numbers_of(same)
    assert one.status is same.status
    assert numbers_of(one) != numbers_of(other)


@pytest.mark.parametrize("name", ENDLESS)
def test_the_seed_makes_the_streams_where_the_time_makes_the_result(name: str, asked: Asked) -> None:
    seeds = []
    for seed in (1, 1, 2):
        asked.clear()
        ENDLESS[name](seed=seed)
        seeds.append({(scope, stream): drawn for (_, scope, stream), drawn in asked})
    one, same, other = seeds
    common = set(one) & set(same) & set(other)
    assert common
    assert all(one[stream] == same[stream] != other[stream] for stream in common)


def test_the_best_configuration_does_not_depend_on_the_seed() -> None:
    one, other = (fastmix.most_probable(FRUSTRATED, method="search", time_limit=0.3, seed=seed) for seed in (1, 2))
    assert one.log_weight == other.log_weight


@pytest.mark.parametrize("name", [*DRAWING, "ancestral_sample"])
def test_a_seed_that_was_drawn_makes_the_result_again(name: str) -> None:
    first = SEEDED[name]()
    assert isinstance(first.seed, int)
    assert numbers_of(first) == numbers_of(SEEDED[name](seed=first.seed))


def test_there_is_no_seed_where_nothing_was_drawn() -> None:
    for name in ("infer, exact", "loopy_bp", "certify", "project, euclidean", "learn, exact", "score, exact"):
        assert LIMITED[name]().seed is None
    assert LIMITED["infer, exact"](seed=5).seed == 5
    mixed = fastmix.compare(WEAK, methods=["gibbs"], time_limit=0.1, progress=None)
    assert mixed.seed == mixed.results["gibbs"].seed


# -- what a result says of its call ---------------------------------------------------------------------------------


def check_account(result: Result, *, limit: float | None = None, seed: int | None = None) -> None:
    """An AssertionError where the result of a call does not say what it was, how long it took and what ended it."""
    stats, origin = result.stats, result.provenance
    assert stats["seconds"] >= stats["compile_seconds"] >= 0.0
    assert stats["stopped_by"] in ("done", "accuracy", "time_limit", "interrupt")
    assert (stats["stopped_by"] == "interrupt") == (result.status is Status.INTERRUPTED)
    assert "time_limit" in stats
    assert origin["version"] == fastmix.__version__
    assert len(origin["model_hash"]) == 64
    assert {"platform", "python", "numpy", "device"} <= set(origin)
    assert origin["options"]["time_limit"] == limit
    if seed is not None:
        assert origin["seed"] == seed
    if limit is not None and "method" in origin["options"]:
        assert stats["time_limit"] in (limit, None)
    assert result.to_dict()["provenance"]["options"]["time_limit"] == limit
    assert result.advice
    assert str(result.status) in result.summary()


@pytest.mark.parametrize("name", [name for name in ALL if name not in ENDLESS])
def test_every_result_says_how_it_came_about(name: str) -> None:
    result = ALL[name](seed=7)
    seedless = name in ("loopy_bp", "certify", "warm_up")
    check_account(result, seed=None if seedless else 7)
    assert result.stats["stopped_by"] in ("done", "accuracy")
    assert isinstance(result, Result)


DEFAULT_LIMITED = {
    "infer, auto", "infer, auto with log Z", "infer, annealed", "infer, mean-field", "infer, loopy-bp", "anneal",
    "mean_field", "loopy_bp", "bracket, exact", "most_probable, exact", "denoise", "denoise, noise added",
}  # fmt: skip


def test_names_of_calls_are_right() -> None:
    assert set(ALL) > DEFAULT_LIMITED
    assert set(SILENT) < set(LIMITED)


@pytest.mark.parametrize("name", [name for name in ALL if name not in ENDLESS])
def test_a_limit_holds_where_neither_it_nor_the_work_was_given(name: str) -> None:
    """Work whose amount is known runs to its end, and so does what gives nothing before."""
    assert ALL[name]().stats["time_limit"] == (DEFAULT_SECONDS if name in DEFAULT_LIMITED else None)


def test_a_default_limit_is_no_plan_to_be_filled() -> None:
    """Chains fill the time that was asked for; otherwise they make a usual number of sweeps."""
    for call in (of(infer, WEAK, method="gibbs"), of(fastmix.sample, WEAK), of(denoise, PICTURE, method="gibbs")):
        result = call(seed=1)
        assert result.stats["time_limit"] == DEFAULT_SECONDS
        assert result.stats["stopped_by"] == "done"
        assert result.stats["seconds"] < 0.5 * DEFAULT_SECONDS


# -- time limits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [1e-3, 0.05])
@pytest.mark.parametrize("name", LIMITED)
def test_a_time_limit_ends_in_a_result_or_in_an_error_that_says_so(name: str, seconds: float) -> None:
    try:
        result = LIMITED[name](seed=3, time_limit=seconds)
    except (NotConvergedError, ResourceError) as error:
        result, refusal = None, str(error)
    if result is None:
        assert "time" in refusal
        return
    check_account(result, limit=seconds)
    if name != "compare":  # where it is that of each method
        assert result.stats["time_limit"] == seconds
    assert result.status is not Status.INTERRUPTED


@pytest.mark.parametrize("limit", [0, -1.0, np.nan, "soon", True])
@pytest.mark.parametrize("name", LIMITED)
def test_every_verb_refuses_the_same_limits(name: str, limit: Any) -> None:
    with pytest.raises(ValueError, match=f"^time_limit .*{limit!r}$"):
        LIMITED[name](time_limit=limit)


# -- Ctrl-C ---------------------------------------------------------------------------------------------------------


class Stop:
    """A listener in whose k-th report the user presses Ctrl-C."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, progress: Progress) -> None:
        assert isinstance(progress, Progress)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


SILENT = (  # which are short, or one step
    "draw_exact", "certify", "infer, exact", "score, exact", "bracket, exact", "most_probable, exact",
)  # fmt: skip


@pytest.mark.parametrize("name", [name for name in LIMITED if name not in SILENT])
def test_an_interrupt_holds_what_there_is(name: str) -> None:
    kind = ChainResult if name == "infer, auto with a trial" else type(LIMITED[name](seed=2))
    for number in (1, 2, 3, 5, 8, 13, 21, 34):
        stop = Stop(number)
        error = None
        try:
            LIMITED[name](seed=2, progress=stop)
        except Interrupted as stopped:
            error = stopped
        if stop.left > 0:  # the call was over before
            assert number > 1
            break
        assert stop.left == 0, "the call went on after Ctrl-C"
        assert error is not None, "Ctrl-C was lost"
        check_interrupted(error, kind)


def check_interrupted(error: Interrupted, kind: type[Result] = Result) -> None:
    """An AssertionError unless there is no result, or one that says that it is not whole."""
    assert not isinstance(error, FastmixError)  # a loop over models that catches errors of fastmix stops, too
    if error.result is None:
        assert str(error) == "interrupted before there was anything to report"
        return
    assert isinstance(error.result, kind)
    assert error.result.status is Status.INTERRUPTED
    check_account(error.result, limit=error.result.provenance["options"]["time_limit"])


@pytest.mark.parametrize("name", LIMITED)
def test_an_interrupt_at_any_look_at_the_clock_ends_the_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two reports, while a method is chosen, in parts of a call: wherever it reads its clock."""
    looks = 0
    due = 0

    def watch(method: str) -> None:
        plain = getattr(Clock, method)

        def look(*given: Any, **options: Any) -> Any:
            nonlocal looks
            looks += 1
            if looks == due:
                raise KeyboardInterrupt
            return plain(*given, **options)

        monkeypatch.setattr(Clock, method, look)

    for method in ("used", "left", "past", "report"):
        watch(method)
    for due in (1, 2, 4, 9, 16, 40, 100, 250, 600, 1500):
        looks = 0
        error = None
        try:
            LIMITED[name](seed=2)
        except Interrupted as stopped:
            error = stopped
        if looks < due:
            break
        assert error is not None, "Ctrl-C was lost"
        check_interrupted(error)


@pytest.mark.parametrize("name", SEEDED)
def test_an_interrupt_before_the_first_random_number(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(Context, "seed_of", interrupt)
    with pytest.raises(Interrupted) as stopped:
        SEEDED[name](seed=1)
    check_interrupted(stopped.value)


def test_an_interrupt_of_an_open_context_has_no_result() -> None:
    with pytest.raises(Interrupted) as stopped, open_context("test", WEAK):
        raise KeyboardInterrupt
    check_interrupted(stopped.value)
    assert stopped.value.result is None
