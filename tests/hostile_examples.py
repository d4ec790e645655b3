"""Valid arguments of every public function and method, and objects whose methods are called."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fastmix
from fastmix import MarkovRandomField, crf, denoising, experiments, io, learning
from fastmix.bounds.exact_bounds import ExactBounds
from fastmix.model.network import BayesianNetwork
from fastmix.modes.exact_route import ExactRoute
from fastmix.theory.width_criterion import WidthCriterion

# Methods that fastmix calls, with arguments of its own making, and users write.
HOOKS = frozenset({
    "begin", "by_variable", "check", "check_validation", "descend", "entry_positions", "evaluate", "expanded",
    "expansion", "fits", "fits_in_time", "frequencies", "least_seconds", "of", "pair_frequencies", "reduce", "run",
    "start", "validate", "value", "watch",
})  # fmt: skip

# Classes whose objects fastmix makes and users read.
RECORDS = frozenset({
    "Adjacency", "AnnealedResult", "BracketResult", "Certificate", "ChainResult", "Comparison", "ConditionalFit",
    "Context", "CountedResult", "Dataset", "DenoiseResult", "DrawResult", "Enumeration", "Estimate", "ExactPlan",
    "ExactResult", "Experiment", "ExperimentResult", "InferenceResult", "Intervals", "LearnResult", "LogZResult",
    "LoopyBPResult", "MeanFieldResult", "ModelElimination", "MomentComparison", "MostProbableResult",
    "MulticanonicalResult", "NetworkFit", "Observables",
    "PairInformation",
    "PerfectResult", "PreparedModel", "Progress", "ProjectedResult", "ProjectionResult", "Result", "RowAnswers",
    "SampleResult", "ScoreResult", "SensitivityResult", "Status", "TemperedResult", "Validation", "WarmUpResult",
})  # fmt: skip

# What modules share with each other: it takes what they have checked.
INTERNAL = frozenset({
    "Context.complete", "Context.finish", "Context.raise_nothing", "Context.rng", "Context.seed_of", "Context.within",
    "Dataset.blank_model", "Dataset.column", "Dataset.edge_numbers", "Dataset.with_hidden", "Experiment.calls",
    "Experiment.cases", "Experiment.make_cases", "Experiment.num_trials", "Experiment.restrict",
    "MarkovRandomField.edge_tables", "MarkovRandomField.remember_network", "MarkovRandomField.table_entries",
    "MarkovRandomField.table_of_edge",
    "ModelElimination.calibrate", "ModelElimination.draw", "Structure", "Structure.factor_groups",
    "Structure.with_table_use", "check_pairwise",
    "Law.chain", "Law.probabilities", "Law.table", "Logical.chain", "Logical.probabilities", "Logical.table",
    "NoisyMax.chain", "NoisyMax.probabilities", "NoisyMax.table", "NoisyOr.chain", "NoisyOr.probabilities",
    "NoisyOr.table",
    "label_model", "normalize_rows",
    "plan_exact", "plan_model_elimination", "write_report",
})  # fmt: skip

LIMIT = {"time_limit": 0.2, "progress": None}
DATA = np.random.default_rng(0).integers(0, 2, size=(20, 3))
PICTURE = np.kron([[0.0, 1.0], [1.0, 0.0]], np.ones((3, 3))) * 0.8 + 0.1 * np.random.default_rng(1).random((6, 6))
EDGES = [(0, 1), (1, 2)]
CHAINS = [[[0.5], [1.0], [-1.0]], [[0.0], [-1.0]]]
LABELS = [[0, 1, 1], [1, 0]]


@cache
def model() -> MarkovRandomField:
    """Three spins with names."""
    return MarkovRandomField.ising(EDGES, coupling=0.3, field=[0.1, 0.0, -0.2], variable_names=["a", "b", "c"])


@cache
def attractive() -> MarkovRandomField:
    """Three spins without fields."""
    return MarkovRandomField.ising(EDGES, coupling=0.3)


@cache
def network() -> BayesianNetwork:
    """Two variables."""
    tables = [[0.8, 0.2], [[0.9, 0.1], [0.3, 0.7]]]
    return BayesianNetwork(["rain", "wet"], [["no", "yes"]] * 2, [[], [0]], tables)


@cache
def data_set() -> learning.Dataset:
    """Rows of three columns."""
    return learning.read_data(DATA)


@cache
def picture() -> denoising.DenoiseResult:
    """A picture of two labels."""
    return denoising.denoise(PICTURE, seed=0, **LIMIT)


@cache
def field() -> crf.ConditionalRandomField:
    """A field fitted to chains of two labels."""
    return crf.ConditionalRandomField(max_iter=3, random_state=0, progress=None).fit(CHAINS, LABELS)


@cache
def files() -> dict[str, Path]:
    """A file of every kind, in the working directory of the first who asks."""
    found = {
        name: Path.cwd() / f"small.{name}" for name in ("uai", "mar", "pr", "mpe", "evid", "bif", "csv", "png", "fasta")
    }
    io.write_model(model(), found["uai"])
    io.write_mar([[0.5, 0.5]], found["mar"])
    io.write_pr(1.0, found["pr"])
    io.write_mpe([0, 1], found["mpe"])
    io.write_evidence({0: 1}, found["evid"])
    found["bif"].write_text(
        "network n { }\nvariable a { type discrete [ 2 ] { x, y }; }\nprobability ( a ) { table 0.25, 0.75; }\n"
    )
    found["fasta"].write_text(">one\nAC-\n>two\nACD\n")
    found["csv"].write_text("a,b\n0,1\n1,1\n1,0\n")
    denoising.write_picture(picture(), found["png"])
    return found


def _small(**more: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {"model": model(), **more}


def _path(kind: str, **more: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {"path": files()[kind], **more}


@cache
def _sampled() -> fastmix.SampleResult:
    return fastmix.sample(model(), num_chains=2, num_sweeps=20, num_draws=10, edge_marginals=True, seed=0)


@cache
def _multicanonical() -> fastmix.MulticanonicalResult:
    result: Any = fastmix.infer(model(), method="multicanonical", num_walkers=2, num_sweeps=50, seed=0)
    return result


@cache
def _tempered() -> fastmix.TemperedResult:
    return fastmix.temper(model(), temperatures=[1.0, 1.5], num_ensembles=4, num_sweeps=100, num_draws=50, seed=0)


RECEIVERS: dict[str, Callable[[], Any]] = {
    "MulticanonicalResult": _multicanonical,
    "AnnealedResult": lambda: _sampled(),
    "Adjacency": lambda: model().adjacency,
    "BayesianNetwork": network,
    "BracketResult": cache(lambda: fastmix.bracket(model())),
    "Certificate": cache(lambda: fastmix.certify(model(), accuracy=0.1)),
    "PairInformation": cache(lambda: fastmix.mutual_information(model())),
    "SensitivityResult": cache(lambda: fastmix.sensitivity(model(), 0, evidence={1: 1})),
    "ConditionalFit": lambda: field().result_,
    "ConditionalRandomField": lambda: field(),
    "Comparison": cache(lambda: fastmix.compare(model(), methods=["mean-field"])),
    "DenoiseResult": picture,
    "DynamicNetwork": lambda: fastmix.DynamicNetwork(network(), [[(0, -1)], [0]], [[[0.5, 0.5]] * 2] * 2),
    "ExperimentResult": lambda: experiments.ExperimentResult(
        model=model(),
        experiments=("potts",),
        report=Path("report.html"),
        figures=(),
        num_rows=1,
        num_run=1,
        num_failed=0,
    ),
    "LogZResult": cache(lambda: fastmix.log_z(model())),
    "InferenceResult": cache(lambda: fastmix.infer(model(), method="exact", edge_marginals=True)),
    "LearnResult": cache(lambda: fastmix.learn(DATA, max_iter=3)),
    "MarkovRandomField": model,
    "MostProbableResult": cache(lambda: fastmix.most_probable(model())),
    "PreparedModel": cache(lambda: fastmix.prepare(model())),
    "MomentComparison": cache(lambda: learning.compare_moments(model(), DATA, num_draws=50, seed=0)),
    "RowAnswers": cache(lambda: fastmix.prepare(model(), queries=[(0, 1)]).ask([[0, -1, -1]])),
    "NetworkFit": cache(lambda: fastmix.fit_network(DATA, structure={1: [0]})),
    "ProjectionResult": cache(lambda: fastmix.project(model(), norm_bound=0.2)),
    "Result": lambda: fastmix.Result(model=model()),
    "SampleResult": _sampled,
    "Observables": lambda: _tempered().observables(),
    "TemperedResult": _tempered,
    "ScoreResult": cache(lambda: fastmix.score(model(), DATA, seed=0)),
    "WarmUpResult": lambda: fastmix.WarmUpResult(model=model(), parts={"exact": 0.5}),
}

_STEP = {"edges": EDGES, "coupling": 0.3}
_GRID = {"rows": 2, "cols": 3}
_RANDOM = {"coupling_max": 1.0, "seed": 0}

# Arguments that are used where another one is tried; those with defaults may be left out.
EXAMPLES: dict[str, Callable[[], dict[str, Any]]] = {
    # Models.
    "MarkovRandomField": lambda: {
        "num_states": [2, 2, 2],
        "log_unary": np.zeros(6),
        "edges": EDGES,
        "log_pairwise": np.ones(8),
    },
    "MarkovRandomField.condition": lambda: {"evidence": {0: 1}},
    "MarkovRandomField.edge_index": lambda: {"i": 0, "j": 1},
    "MarkovRandomField.edge_table": lambda: {"values": np.zeros(8), "i": 0, "j": 1},
    "MarkovRandomField.factor": lambda: {"number": 0},
    "MarkovRandomField.from_couplings": lambda: {"coupling": [[0.0, 1.0], [1.0, 0.0]]},
    "MarkovRandomField.from_factors": lambda: {"num_states": [2, 2], "factors": [((0, 1), np.zeros((2, 2)))]},
    "MarkovRandomField.from_networkx": lambda: {"graph": fastmix.convert(model(), to="networkx")},
    "MarkovRandomField.from_probabilities": lambda: {
        "unary": np.ones((2, 2)),
        "edges": [(0, 1)],
        "pairwise": np.ones((1, 2, 2)),
    },
    "MarkovRandomField.from_patterns": lambda: {
        "log_unary": np.zeros((3, 2)),
        "edges": EDGES,
        "patterns": [np.eye(2)],
        "weights": [0.5, 1.0],
    },
    "MarkovRandomField.from_tables": lambda: {
        "log_unary": np.zeros((2, 2)),
        "edges": [(0, 1)],
        "log_pairwise": np.zeros((1, 2, 2)),
        "shape": (2,),
    },
    "MarkovRandomField.image": lambda: {
        "log_unary": np.zeros((2, 3, 2)),
        "log_pairwise": 0.5,
        "contrast": np.ones((2, 3)),
    },
    "MarkovRandomField.ising": lambda: dict(_STEP),
    "MarkovRandomField.log_weight": lambda: {"states": [0, 1, 1]},
    "MarkovRandomField.potts": lambda: {**_STEP, "num_states": 3},
    "MarkovRandomField.rbm": lambda: {"W": [[1.0, -2.0]]},
    "MarkovRandomField.replace": dict,
    "MarkovRandomField.at_temperature": lambda: {"temperature": 2.0},
    "MarkovRandomField.state_index": lambda: {"variable": 0, "state": 1},
    "MarkovRandomField.sufficient_statistics": lambda: {"states": [0, 1, 1]},
    "MarkovRandomField.table": lambda: {"i": 0, "j": 1},
    "MarkovRandomField.unary": lambda: {"variable": 0},
    "MarkovRandomField.variable_index": lambda: {"variable": 0},
    "MarkovRandomField.with_parameters": lambda: {"parameters": np.zeros(14)},
    "BayesianNetwork": lambda: {
        "variable_names": ["a", "b"],
        "state_names": [["x", "y"]] * 2,
        "parents": [[], [0]],
        "tables": [[0.5, 0.5], [[0.5, 0.5], [0.1, 0.9]]],
    },
    "Law": dict,
    "DynamicNetwork": lambda: {"first": network(), "parents": [[(0, -1)], [0]], "tables": [[[0.5, 0.5]] * 2] * 2},
    "DynamicNetwork.filter": lambda: {"observations": [{}]},
    "DynamicNetwork.unroll": lambda: {"num_times": 2},
    "Logical": lambda: {"kind": "or"},
    "NoisyMax": lambda: {"contributions": [[[0.5, 0.5], [0.5, 0.5]]]},
    "NoisyOr": lambda: {"probabilities_of_causes": [0.5, 0.5]},
    "BayesianNetwork.ancestral": lambda: {"variables": ["wet"]},
    "BayesianNetwork.do": lambda: {"interventions": {"wet": "yes"}},
    "BayesianNetwork.sample": lambda: {"num_draws": 3},
    "BayesianNetwork.state_index": lambda: {"variable": "rain", "state": "yes"},
    "BayesianNetwork.variable_index": lambda: {"variable": "rain"},
    "check_model": _small(),
    "convert": lambda: {"source": model()},
    # Methods, divergences, rules: their options have defaults.
    **dict.fromkeys(
        (
            "Annealed",
            "Auto",
            "DecreasingStep",
            "Exact",
            "FixedStep",
            "Ganak",
            "Gibbs",
            "KL",
            "LineSearch",
            "LoopyBP",
            "MeanField",
            "Mixture",
            "Multicanonical",
            "NormBall",
            "PaperDual",
            "Perfect",
            "PiecewiseKL",
            "Projected",
            "ReversedKL",
            "SwendsenWang",
            "Tempered",
            "WidthBall",
            "Settings",
        ),
        dict,
    ),
    # Verbs.
    "ancestral_sample": lambda: {"network": network(), "num_draws": 3},
    "anneal": lambda: {"model": attractive(), "num_steps": 3, "num_chains": 2, "sweeps_per_step": 1, **LIMIT},
    "bracket": _small(**LIMIT, num_draws=100),
    "certify": _small(accuracy=0.1, **LIMIT),
    "compare": _small(methods=["mean-field"], **LIMIT),
    "dependency_matrix": _small(),
    "edge_dependencies": _small(),
    "bias_after": lambda: {"model_or_R": model(), "num_sweeps": 3},
    "comparison_bounds": lambda: {"projected": model(), "original": model()},
    "matrix_norm": lambda: {"R": np.eye(2), "norm": "spectral"},
    "processes": dict,
    "draw_exact": _small(num_draws=3, **LIMIT),
    "infer": _small(**LIMIT),
    "learn": lambda: {"data": DATA, "max_iter": 2, **LIMIT},
    "log_z": lambda: {"structure": model(), **LIMIT},
    "LogZResult.plot": dict,
    "LogZResult.hessian_product": lambda: {"direction": np.ones(14)},
    "loopy_bp": _small(**LIMIT),
    "mean_field": _small(**LIMIT),
    "most_probable": _small(**LIMIT),
    "perfect_sample": _small(**LIMIT),
    "fit_network": lambda: {"data": DATA, "structure": {1: [0]}, "max_iter": 2, **LIMIT},
    "prepare": _small(),
    "predict": lambda: {"model": model(), "rows": [[0, -1, -1]], **LIMIT},
    "impute": lambda: {"model": model(), "rows": [[0, -1, -1]], **LIMIT},
    "sensitivity": _small(query=0, **LIMIT),
    "mutual_information": _small(**LIMIT),
    "SensitivityResult.findings": dict,
    "SensitivityResult.impact": dict,
    "SensitivityResult.parameters": lambda: {"state": 0},
    "ConditionalRandomField": dict,
    "ConditionalRandomField.fit": lambda: {"X": CHAINS, "y": LABELS},
    "ConditionalRandomField.get_params": dict,
    "ConditionalRandomField.log_likelihood": lambda: {"X": CHAINS, "y": LABELS},
    "ConditionalRandomField.model": lambda: {"x": CHAINS[0]},
    "ConditionalRandomField.predict": lambda: {"X": CHAINS},
    "ConditionalRandomField.predict_proba": lambda: {"X": CHAINS},
    "ConditionalRandomField.sample": lambda: {"X": CHAINS},
    "ConditionalRandomField.score": lambda: {"X": CHAINS, "y": LABELS},
    "ConditionalRandomField.set_params": dict,
    "Graph": lambda: {"features": np.zeros((3, 1)), "edges": EDGES},
    "Graph.chain": lambda: {"features": np.zeros((3, 1))},
    "Graph.grid": lambda: {"features": np.zeros((2, 2, 1))},
    "PreparedModel.ask": lambda: {"rows": [[0, -1, -1]], **LIMIT},
    "PreparedModel.impute": lambda: {"rows": [[0, -1, -1]]},
    "PreparedModel.predict": lambda: {"rows": [[0, -1, -1]]},
    "PreparedModel.update": _small(),
    "RowAnswers.joint": lambda: {"variables": (0,)},
    "RowAnswers.marginal": lambda: {"variable": 0},
    "NetworkFit.plot": dict,
    "RowAnswers.plot": dict,
    "project": _small(norm_bound=0.2, **LIMIT),
    "register_bracket": lambda: {"bracket": ExactBounds()},
    "register_route": lambda: {"route": ExactRoute()},
    "register_criterion": lambda: {"criterion": WidthCriterion()},
    "register_divergence": lambda: {"divergence": fastmix.KL},
    "register_objective": lambda: {"objective": learning.likelihood.Likelihood},
    "register_method": lambda: {"method": fastmix.Gibbs},
    "sample": _small(num_chains=2, num_sweeps=10, **LIMIT),
    "score": _small(data=DATA, **LIMIT),
    "temper": _small(num_sweeps=10, num_replicas=2, **LIMIT),
    "warm_up": lambda: {"progress": None},
    "enumerate_model": _small(),
    "infer_exact": _small(),
    # Results.
    "AnnealedResult.edge_marginal": lambda: {"i": 0, "j": 1},
    "AnnealedResult.estimate": lambda: {
        "function": lambda means: means["weight"] ** 2,
        "observables": {"weight": model().log_weight},
    },
    "AnnealedResult.expect": lambda: {"function": model().log_weight},
    "AnnealedResult.joint": lambda: {"variables": (0,)},
    "AnnealedResult.marginal": lambda: {"variable": 0},
    "AnnealedResult.plot": dict,
    "AnnealedResult.to_frame": dict,
    "MulticanonicalResult.phases": dict,
    "AnnealedResult.variance": lambda: {"function": model().log_weight},
    "BracketResult.marginal": lambda: {"variable": 0},
    "BracketResult.misses": lambda: {"result": fastmix.mean_field(model())},
    "BracketResult.plot": dict,
    "Certificate.plot": dict,
    "Comparison.plot": dict,
    "ConditionalFit.plot": dict,
    "PairInformation.plot": dict,
    "SensitivityResult.plot": dict,
    "Comparison.save": lambda: {"folder": "saved"},
    "DenoiseResult.plot": dict,
    "ExperimentResult.plot": dict,
    "Estimate.from_groups": lambda: {"groups": [1.0, 2.0]},
    "LearnResult.plot": dict,
    "LearnResult.couplings": dict,
    "MostProbableResult.plot": dict,
    "ProjectionResult.plot": dict,
    "Result.plot": dict,
    "SampleResult.intervals": dict,
    "Observables.correlation_length": lambda: {"shape": (3,)},
    "Observables.correlations": lambda: {"shape": (3,)},
    "Observables.mean": lambda: {"function": model().log_weight},
    "Observables.overlap_correlation_length": lambda: {"shape": (3,)},
    "Observables.overlap_distribution": dict,
    "Observables.plot": dict,
    "Observables.to_frame": dict,
    "TemperedResult.at": lambda: {"rung": 0},
    "TemperedResult.observables": dict,
    "ScoreResult.plot": dict,
    "WarmUpResult.plot": dict,
    # Pictures.
    "add_noise": lambda: {"clean": PICTURE, "seed": 0},
    "binarize": lambda: {"image": PICTURE},
    "denoise": lambda: {"image": PICTURE, **LIMIT},
    "denoising_model": lambda: {"observed": PICTURE},
    "load_image": _path("png", size=(4, 4)),
    "parse_size": lambda: {"text": "3x4"},
    "write_comparison": lambda: {"result": picture(), "path": "comparison.png"},
    "write_picture": lambda: {"result": picture(), "path": "picture.png"},
    # Experiments.
    "cluster": lambda: {"address": "nowhere"},
    "run_experiment": lambda: {"name": next(iter(experiments.EXPERIMENTS)), "output": "experiment", "quick": True},
    # Graphs and random models.
    "Adjacency.neighbors_of": lambda: {"variable": 0},
    **dict.fromkeys(
        ("adjacency", "coloring", "connected_components", "degeneracy"), lambda: {"num_variables": 3, "edges": EDGES}
    ),
    "canonical_edges": lambda: {"num_variables": 3, "pairs": EDGES},
    "check_coloring": lambda: {"edges": EDGES, "colors": [0, 1, 0]},
    "complete_bipartite_edges": lambda: {"left": 2, "right": 3},
    **dict.fromkeys(("complete_edges", "cycle_edges", "path_edges"), lambda: {"num_variables": 3}),
    "covering_spanning_trees": lambda: {"num_variables": 3, "edges": EDGES, "seed": 0},
    "cubic_edges": lambda: {"depth": 2, **_GRID},
    "erdos_renyi_edges": lambda: {"num_variables": 3, "probability": 0.5, "seed": 0},
    **dict.fromkeys(("grid_edges", "hexagonal_edges", "triangular_edges"), lambda: dict(_GRID)),
    "random_regular_edges": lambda: {"num_variables": 4, "degree": 3, "seed": 0},
    "random_tree_edges": lambda: {"num_variables": 4, "seed": 0},
    "ising_bipartite": lambda: {"left": 2, "right": 3, **_RANDOM},
    "ising_grid": lambda: {**_GRID, **_RANDOM},
    "ising_random": lambda: {"num_variables": 4, "edge_probability": 0.5, **_RANDOM},
    "ising_regular": lambda: {"num_variables": 4, "degree": 3, **_RANDOM},
    "ising_tree": lambda: {"num_variables": 4, **_RANDOM},
    "potts_grid": lambda: {**_GRID, **_RANDOM},
    "random_tables": lambda: {"edges": EDGES, "num_states": 2, "scale": 1.0, "seed": 0},
    # Files.
    "Format": lambda: {"name": "own", "suffixes": (".own",), "read": len, "write": None, "matches": bool},
    "atomic_write": lambda: {"path": "written"},
    "format_of": _path("uai"),
    "read_evidence": _path("evid", num_states=[2, 2, 2]),
    "read_mar": _path("mar"),
    "read_model": _path("uai"),
    "read_model_or_network": _path("uai"),
    "read_mpe": _path("mpe"),
    "read_network": _path("bif"),
    "read_pr": _path("pr"),
    "register_answer": lambda: {"suffix": ".own", "write": len},
    "register_format": lambda: {"new": io.Format("own", (".own",), len, None, bool)},
    "write_answer": lambda: {"result": _sampled(), "path": "answer.json"},
    "write_evidence": lambda: {"evidence": {0: 1}, "path": "written.evid"},
    "write_mar": lambda: {"marginals": [[0.5, 0.5]], "path": "written.mar"},
    "write_model": _small(path="written.uai"),
    "write_mpe": lambda: {"states": [0, 1], "path": "written.mpe"},
    "write_pr": lambda: {"natural_log_z": 1.0, "path": "written.pr"},
    # Data.
    "chow_liu": lambda: {"data": data_set()},
    "edge_gains": lambda: {"model": attractive(), "data": data_set()},
    "read_data": lambda: {"data": DATA},
    "read_table": _path("csv"),
    "compare_moments": lambda: {"model": model(), "data": DATA, "num_draws": 50},
    "MomentComparison.plot": dict,
    "read_fasta": _path("fasta"),
    "sequence_weights": lambda: {"data": DATA},
    "contact_scores": _small(),
    "rank_contacts": lambda: {"scores": [[0.0, 1.0], [1.0, 0.0]]},
    "mutant_energies": _small(sequence=[0, 1, 0]),
    "stability": lambda: {"data": DATA, "l1": 0.1, "num_subsamples": 1},
}

# Functions some of whose refusals are not clear: they are counted, and do not fail.
OPEN: frozenset[str] = frozenset()
