"""Calls of every verb on small models that are not those of the warm-up, each with a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fastmix
from fastmix.model import MarkovRandomField

Call = Callable[[], Any]


def other_models() -> dict[str, MarkovRandomField]:
    """Small models of all kinds by name."""
    rng = np.random.default_rng(5)
    counts = [2, 4, 3, 2, 4]
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]
    unary = [rng.normal(size=count) for count in counts]
    tables = [rng.normal(size=(counts[i], counts[j])) for i, j in edges]
    hard = [table.copy() for table in tables]
    hard[0][0, 1] = -np.inf
    hard[3][1, 2] = -np.inf
    scopes = [(0, 1, 2), (2, 3, 4), (1, 3)]
    factors = [(scope, rng.normal(size=[counts[v] for v in scope])) for scope in scopes]
    return {
        "ising": fastmix.instances.ising_grid(4, 5, coupling_max=0.8, seed=3),
        "weak": fastmix.instances.ising_grid(3, 5, coupling_max=0.1, seed=3),
        "attractive": fastmix.instances.ising_grid(4, 4, coupling_max=0.8, attractive=True, seed=4),
        "potts": fastmix.instances.potts_grid(3, 4, num_states=4, coupling_max=0.8, seed=5),
        "attractive potts": fastmix.instances.potts_grid(3, 4, num_states=4, coupling_max=0.8, attractive=True, seed=6),
        "uneven": MarkovRandomField.from_tables(unary, edges, tables),
        "forbidden": MarkovRandomField.from_tables(unary, edges, hard),
        "factors": MarkovRandomField.from_factors(counts, factors),
    }


def differentiated(model: MarkovRandomField, thetas: np.ndarray) -> fastmix.LogZResult:
    """Log Z of rows of parameters, after all of its derivatives have been computed."""
    found = fastmix.log_z(model.structure, thetas)
    found.gradient()
    found.hessian_product(np.ones(thetas.shape[-1]))
    return found


def calls_of(model: MarkovRandomField) -> Iterator[tuple[str, Call]]:
    """Calls of every verb that takes a model; some of them are refused for some models."""
    short: dict[str, Any] = {"num_sweeps": 30, "burn_in": 3, "seed": 1}
    for method in fastmix.method.METHODS:
        yield f"infer {method}", partial(fastmix.infer, model, method=method, seed=1, time_limit=1.0)
    for num_chains in (1, 5, 64):
        yield f"sample {num_chains}", partial(fastmix.sample, model, num_chains=num_chains, **short)
    yield "sample edges", partial(fastmix.sample, model, num_chains=5, edge_marginals=True, **short)
    yield "sample random", partial(fastmix.sample, model, num_chains=5, schedule="random", **short)
    yield "sample draws", partial(fastmix.sample, model, num_chains=5, num_draws=4, **short)
    yield "swendsen-wang", partial(fastmix.sample, model, method="swendsen-wang", num_chains=5, **short)
    yield "perfect", partial(fastmix.perfect_sample, model, num_draws=3, seed=1)
    yield "temper", partial(fastmix.temper, model, num_ensembles=2, **short)
    yield "draw", partial(fastmix.draw_exact, model, num_draws=3, seed=1)
    rows = np.full((3, model.num_variables), -1)
    yield "rows", partial(fastmix.prepare(model).ask, rows, most_probable=True, num_draws=1, seed=1)
    thetas = np.stack([model.parameters] * 9)
    yield "log z", partial(fastmix.log_z, model)
    yield "sensitivity", partial(fastmix.sensitivity, model, 0)
    yield "gradients", partial(differentiated, model, thetas)
    yield "map", partial(fastmix.most_probable, model, seed=1)
    for method in ("cut", "messages", "expansion", "swap", "search"):
        yield f"map {method}", partial(fastmix.most_probable, model, method=method, seed=1, time_limit=1.0)
    yield "bracket", partial(fastmix.bracket, model, seed=1)
    for confidence in (None, 0.95):
        rough = partial(fastmix.bracket, model, memory_limit=2000, confidence=confidence, seed=1, time_limit=1.0)
        yield f"rough bracket {confidence}", rough
    for schedule in ("systematic", "random"):
        yield f"certify {schedule}", partial(fastmix.certify, model, accuracy=0.02, schedule=schedule)
    for norm in ("inf", "spectral"):
        yield f"project {norm}", partial(fastmix.project, model, norm_bound=0.5, norm=norm)
    rows = np.asarray(fastmix.draw_exact(model, num_draws=200, seed=1))
    given = {"num_states": model.num_states, "seed": 1, "max_iter": 2}
    kinds: list[dict[str, Any]] = [
        {"objective": "pseudo-likelihood"},
        {"objective": "pseudo-likelihood", "edges": "chow-liu"},
        {"hidden": fastmix.Mixture(num_components=2)},
        {"moments": "exact"},
        {"moments": "sampled", "num_chains": 64},
    ]
    for options in kinds:
        yield f"learn {options}", partial(fastmix.learn, rows, **options, **given)
    yield "score", partial(fastmix.score, model, rows, seed=1)
    yield "annealing", partial(fastmix.score, model, rows, method="annealing", num_chains=64, seed=1, tol=1.0)


def all_calls() -> Iterator[tuple[str, Call]]:
    """All calls with all models."""
    for kind, model in other_models().items():
        for name, call in calls_of(model):
            yield f"{name} of {kind}", call


def compiled_by_calls(cache: Path) -> dict[str, list[str]]:
    """Files that the calls added to a folder of compiled code, by call; those of calls that are refused count too."""
    added: dict[str, list[str]] = {}
    known = set(cache.rglob("*.nbc"))
    for name, call in all_calls():
        with suppress(fastmix.FastmixError):
            call()
        found = set(cache.rglob("*.nbc"))
        if found - known:
            added[name] = sorted(path.name.split("-")[0] for path in found - known)
        known = found
    return added
