"""Several methods on one model, side by side: errors, seconds and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastmix import _show
from fastmix._arrays import FloatArray
from fastmix._checks import as_float_array, as_list, as_path, check_backend, check_seconds, check_threads, choose_seed
from fastmix._clock import Clock, Report, listening
from fastmix.errors import FastmixError, Interrupted, ResourceError, printable
from fastmix.io.answers import write_answer
from fastmix.methods.base import Method, find_method, make_method, method_names, options_of
from fastmix.methods.inference import infer
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import check_evidence
from fastmix.results import Framed, InferenceResult, LogZKind, Status, as_plain, plain_evidence, provenance

__all__ = ["Comparison", "Row", "compare", "marginal_errors"]

# Who is believed when exact inference is not feasible, the first that ran and is satisfied with itself.
_REFERENCES = ("tempered", "gibbs", "swendsen-wang", "projected", "loopy-bp", "mean-field")
_NOT_COMPARED = ("auto", "perfect")  # unless they are named: it is one of the others; it takes no limit


@dataclass(frozen=True)
class Row:
    """What one method did."""

    method: str  # its name, with settings where it was compared to itself
    status: str  # as in the result of the method, or ``refused`` for one that does not fit the model
    mean_error: float | None = None  # mean and largest total variation distance of a marginal from the reference
    max_error: float | None = None
    std_error: float | None = None  # largest standard error that the method states for the model asked about
    projected_std_error: float | None = None  # the same for the projected model, of the method ``projected``
    log_z: float | None = None
    log_z_kind: LogZKind = "unknown"
    seconds: float = 0.0  # wall clock, compilation included where it was the first use of the method
    note: str = ""  # the guarantee, or the reason of a refusal


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Framed):
    """Rows of a comparison."""

    model: MarkovRandomField
    reference: str | None  #: what errors are measured against; None if nothing could serve
    rows: tuple[Row, ...]
    results: dict[str, InferenceResult]  #: by method as its row is called, for those that ran
    provenance: dict[str, Any]
    status: Status = Status.OK  #: ``interrupted`` after Ctrl-C: methods that were still to come have no row
    stats: Mapping[str, Any] = field(default_factory=dict)  #: seconds, and what ended the comparison

    def __repr__(self) -> str:
        lines = [f"Comparison against {self.reference or 'nothing'}, {self.model}"]
        for row in self.rows:
            error = "-" if row.mean_error is None else f"{row.mean_error:.4f}"
            lines.append(f"  {row.method:<14} {row.status:<13} mean error {error:>7}  {row.seconds:8.2f} s")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The rows as plain data, the shape of the command line's JSON."""
        return as_plain(self, "reference", rows=[asdict(row) for row in self.rows])

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name, with a row for every method."""
        return {f.name: [getattr(row, f.name) for row in self.rows] for f in fields(Row)}

    def _repr_html_(self) -> str:
        rows = [
            (row.method, row.status, "-" if row.mean_error is None else f"{row.mean_error:.4g}", f"{row.seconds:.3g}")
            for row in self.rows
        ]
        facts = [("status", self.status), ("against", self.reference or "nothing")]
        return _show.html_table(repr(self.model), facts, rows, ("method", "status", "mean error", "seconds"))

    def save(self, folder: str | Path) -> list[Path]:
        """Write ``comparison.csv`` and a picture (png and svg, extra ``plot``) into a folder; the files written."""
        folder = as_path("folder", folder)
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        table = target / "comparison.csv"
        write_answer(self, table)
        figure = self.plot().figure
        from matplotlib import pyplot

        pictures = [target / f"comparison.{suffix}" for suffix in ("png", "svg")]
        for path in pictures:
            figure.savefig(path, dpi=150)
        pyplot.close(figure)
        return [table, *pictures]

    def plot(self, axes: Any = None) -> Any:
        """Mean and largest error of every method, with its seconds (Matplotlib, extra ``plot``); the axes come back."""
        rows = [row for row in self.rows if row.mean_error is not None][::-1]
        axes = _show.new_axes(axes, figsize=(7.0, 1.2 + 0.45 * max(1, len(rows))))
        floor = 1e-6  # exact answers have an error of zero, which a logarithmic axis cannot show
        for y, row in enumerate(rows):
            mean, top = (max(error or 0.0, floor) for error in (row.mean_error, row.max_error))
            color = "#0072b2" if row.status == "ok" else "#d55e00"
            axes.plot([mean, top], [y, y], color=color, linewidth=2, alpha=0.5, solid_capstyle="round")
            axes.plot(mean, y, "o", color=color, markersize=8)
            axes.plot(top, y, "|", color=color, markersize=12, markeredgewidth=2)
            verdict = "" if row.status == "ok" else f", {row.status.replace('_', ' ')}"
            axes.annotate(f" {row.seconds:.2g} s{verdict}", (top, y), va="center", xytext=(6, 0),
                          textcoords="offset points", fontsize=9)  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlim(floor / 2, 20.0)
        axes.set_ylim(-0.6, max(1, len(rows)) - 0.4)
        axes.set_yticks(range(len(rows)), [row.method for row in rows])
        axes.set_xlabel("error of a marginal (total variation): mean (dot) and largest (bar)")
        title = printable(f"Errors against {self.reference or 'nothing'}").replace("$", r"\$")  # no formula
        axes.set_title(title, loc="left", fontsize=11)
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right", "left"]].set_visible(False)
        return axes


def marginal_errors(model: MarkovRandomField, marginals: FloatArray, reference: FloatArray) -> FloatArray:
    """Total variation distance of every variable's marginal (n,); for binary ones ``|p(1) - q(1)|``."""
    if not model.num_variables:
        return np.zeros(0)
    return 0.5 * np.add.reduceat(np.abs(marginals - reference), model.unary_offsets[:-1])


def compare(
    model: MarkovRandomField,
    *,
    methods: Sequence[str | Method] | None = None,
    evidence: Evidence | None = None,
    reference: ArrayLike | None = None,
    reference_name: str = "given marginals",
    seed: int | None = None,
    time_limit: float | None = None,
    memory_limit: float | None = None,
    num_threads: int | None = None,
    backend: str | None = None,
    progress: Report = "auto",
) -> Comparison:
    """Run several methods on a model and measure their errors.

    Errors are against the exact marginals when these are feasible, otherwise against ``reference``, otherwise against
    the method that is first in the order tempered, gibbs, swendsen-wang, projected, loopy-bp, mean-field among those
    that finished with status ``ok``; the comparison names it.

    Parameters
    ----------
    model : MarkovRandomField
    methods : sequence of str or Method, optional
        All of :func:`fastmix.infer` but ``auto`` and ``perfect`` by default. ``exact`` is tried anyway, as the
        reference. A method may come several times with different settings: its rows are called by these, such as
        ``gibbs(burn_in=10)``.
    reference : float array, aligned with ``model.log_unary``, optional
        Marginals to trust when exact inference is not feasible.
    reference_name : str
        What to call them.
    time_limit, memory_limit : float, optional
        Seconds for every method, and bytes for exact inference, which is the reference and may take as long as all
        others together.
    backend : {"cpu", "cuda", "auto"}, optional
        Of the methods that can run on a GPU.
    evidence, seed, num_threads, progress
        See :func:`fastmix.infer`; progress is told before each method runs.

    Returns
    -------
    Comparison
        A method that does not fit the model has a row with status ``refused`` and the reason.

    Raises
    ------
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is the comparison so far.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> model = ising_grid(3, 3, coupling_max=0.5, seed=0)
    >>> result = compare(model, methods=["exact", "loopy-bp"], seed=1)
    >>> result.reference, [row.status for row in result.rows], result.rows[1].mean_error < 0.05
    ('exact', ['ok', 'ok'], True)
    """
    check_model(model)
    if evidence is not None:
        check_evidence(evidence)
    wanted = [name for name in method_names() if name not in _NOT_COMPARED]
    if methods is not None:
        wanted = as_list("methods", methods, "a list of methods or of their names")
    if not wanted:
        raise ValueError(f"methods must name at least one of {', '.join(method_names())}, got none")
    trusted = None if reference is None else as_float_array("reference", reference)
    if trusted is not None and trusted.shape != model.log_unary.shape:
        raise ValueError(
            f"reference must have {len(model.log_unary)} numbers, one per state, got shape {trusted.shape}"
        )
    rows_of = _by_label([_make(item, memory_limit) for item in wanted])
    names = list(rows_of)
    chosen = {name: method for name, method in rows_of.items() if method.name == "exact"}
    chosen = (chosen or {"exact": _make("exact", memory_limit)}) | rows_of
    seed, time_limit = choose_seed(seed), check_seconds(time_limit)
    shared = None if time_limit is None else len(rows_of) * time_limit
    check_threads(num_threads)
    if backend is not None:
        check_backend(backend)
    results: dict[str, InferenceResult] = {}
    seconds: dict[str, float] = {}
    refused: dict[str, str] = {}
    stopped_by = "done"
    with listening(progress, "compare") as listener:
        whole = Clock()
        for number, (name, method) in enumerate(chosen.items()):
            clock = Clock(listener=listener, what=name)
            clock.report(number, len(chosen), "methods")
            try:
                results[name] = infer(
                    model, method=method, evidence=evidence, progress=None,
                    time_limit=shared if method.name == "exact" else time_limit, seed=seed, num_threads=num_threads,
                    backend=backend if method.on_gpu else None,
                )  # fmt: skip
            except KeyboardInterrupt as stop:
                stopped_by = "interrupt"
                if (partial := getattr(stop, "result", None)) is not None:
                    results[name] = partial
                elif not results:
                    raise
            except FastmixError as error:
                if method.name == "exact" and not isinstance(error, ResourceError):
                    raise  # the model or the evidence is at fault: no other method can do better
                refused[name] = str(error)
            seconds[name] = clock.seconds()
            if stopped_by == "interrupt":
                break
    believed = None if trusted is None else reference_name
    exact = next((name for name in results if chosen[name].name == "exact"), None)
    if exact is not None or trusted is None:
        believed = exact or _first_satisfied(results, chosen)
        trusted = None if believed is None else results[believed].node_marginals
    rows = [
        Row(name, "refused", seconds=seconds[name], note=refused[name])
        if name in refused
        else _row(model, name, results[name], trusted, seconds[name])
        for name in names
        if name in refused or name in results
    ]
    options: dict[str, Any] = {
        "methods": names, "evidence": plain_evidence(evidence), "time_limit": time_limit, "memory_limit": memory_limit,
        "reference": None if reference is None else reference_name, "backend": backend,
    }  # fmt: skip
    status = Status.INTERRUPTED if stopped_by == "interrupt" else Status.OK
    stats = {"stopped_by": stopped_by, **whole.stats()}
    result = Comparison(model, believed, tuple(rows), results, provenance(model, seed=seed, **options), status, stats)
    if status == Status.INTERRUPTED:
        raise Interrupted("the comparison was interrupted; the rows so far are in this exception", result)
    return result


def _make(item: str | Method, memory_limit: float | None) -> Method:
    """The method itself, or the one with a name, with the memory limit where it has that option."""
    found = type(item) if isinstance(item, Method) else find_method(item, "methods")
    limited = not isinstance(item, Method) and "memory_limit" in options_of(found)
    return make_method(item, {"memory_limit": memory_limit} if limited else {})


def _by_label(methods: Sequence[Method]) -> dict[str, Method]:
    """Methods by what to call them: their names, with the settings that are not the default where a name comes twice.

    The same settings are one method.
    """
    different: list[Method] = []
    for method in methods:
        if not any(_is_same(method, other) for other in different):
            different.append(method)
    counts = Counter(method.name for method in different)
    labelled: dict[str, Method] = {}
    for method in different:
        settings = ", ".join(f"{name}={value}" for name, value in _settings(method)[1].items())
        label = f"{method.name}({settings})" if counts[method.name] > 1 and settings else method.name
        number = 2
        while label in labelled:
            label = f"{label.partition(' #')[0]} #{number}"
            number += 1
        labelled[label] = method
    return labelled


def _is_same(method: Method, other: Method) -> bool:
    """Whether two methods have the same settings; arrays among them are not compared."""
    try:
        return method is other or bool(method == other)
    except ValueError:
        return False


def _settings(method: Method) -> tuple[str, dict[str, str]]:
    """The name of a method, and its options that are not the default as texts, by name."""
    plain = {field.name: repr(getattr(method, field.name)) for field in fields(method)}
    usual = {field.name: repr(field.default) for field in fields(method)}
    return method.name, {name: text for name, text in plain.items() if text != usual[name]}


def _first_satisfied(results: Mapping[str, InferenceResult], chosen: Mapping[str, Method]) -> str | None:
    """Who is believed where exact inference is not feasible; None where nobody is satisfied with itself."""
    for name in _REFERENCES:
        for label, result in results.items():
            if chosen[label].name == name and result.status == "ok":
                return label
    return None


def _row(
    model: MarkovRandomField, name: str, result: InferenceResult, trusted: FloatArray | None, seconds: float
) -> Row:
    error: FloatArray | None = None
    if trusted is not None and result.log_z_kind != "zero":
        error = marginal_errors(model, result.node_marginals, trusted)
    return Row(
        method=name,
        status=str(result.status),
        mean_error=None if error is None else float(error.mean()) if len(error) else 0.0,
        max_error=_largest(error),
        std_error=_largest(getattr(result, "std_error", None)),
        projected_std_error=_largest(getattr(result, "projected_std_error", None)),
        log_z=result.log_z,
        log_z_kind=result.log_z_kind,
        seconds=seconds,
        note=str(result.stats.get("reason") or result.stats.get("guarantee", "")),
    )


def _largest(errors: FloatArray | None) -> float | None:
    return None if errors is None else float(errors.max(initial=0.0))
