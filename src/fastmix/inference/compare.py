"""Several methods on one model, side by side: errors, seconds and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from fastmix import _show
from fastmix._arrays import FloatArray
from fastmix._checks import as_float_array, as_list, as_path, check_seconds
from fastmix._clock import Clock, Ending, Report
from fastmix._context import Context, open_context
from fastmix.errors import FastmixError, ResourceError, printable
from fastmix.inference.infer import infer
from fastmix.io.answers import write_answer
from fastmix.marginals import InferenceResult
from fastmix.method import ENGINES, Method, find_method, make_method, method_names, options_of
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.evidence import check_evidence
from fastmix.results import LogZKind, Result, Status

__all__ = ["Comparison", "Row", "compare", "marginal_errors"]

# Where exact inference is not feasible, the first of these methods whose answer is ``ok`` serves as the reference.
_REFERENCES = ("tempered", "gibbs", "swendsen-wang", "projected", "loopy-bp", "mean-field")
# Left out unless they are named: ``auto`` is one of the others, ``perfect`` takes no time limit, and engines may
# not be installed.
_NOT_COMPARED = ("auto", "perfect", *ENGINES)


@dataclass(frozen=True)
class Row:
    """What one method answered in a comparison.

    Attributes
    ----------
    method : str
        Its name, with its settings where it was compared to itself.
    status : str
        As in the result of the method, or ``refused`` for one that does not fit the model.
    mean_error, max_error : float or None
        Mean and largest total variation distance of a marginal from the reference.
    std_error : float or None
        Largest standard error that the method states for the model asked about.
    projected_std_error : float or None
        Largest standard error for the projected model, of the method ``projected``.
    log_z : float or None
    log_z_kind : {"exact", "estimate", "bound", "zero", "unknown"}
    seconds : float
        Wall clock, compilation included where it was the first use of the method.
    note : str
        The guarantee, or the reason of a refusal.
    """

    method: str
    status: str
    mean_error: float | None = None
    max_error: float | None = None
    std_error: float | None = None
    projected_std_error: float | None = None
    log_z: float | None = None
    log_z_kind: LogZKind = "unknown"
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Comparison(Result):
    """The answers of several methods about one model, and how far each is from a reference."""

    advice_by_status: ClassVar[Mapping[Status, str]] = {
        Status.OK: "Each row has the verdict of its method; believe those that are ok.",
        Status.INTERRUPTED: "Methods that were still to come have no row.",
    }

    reference: str | None  #: what errors are measured against; None if nothing could serve
    rows: tuple[Row, ...]
    results: dict[str, InferenceResult]  #: by method as its row is called, for those that ran

    def __repr__(self) -> str:
        lines = [f"Comparison against {self.reference or 'nothing'}, {self.model}"]
        for row in self.rows:
            error = "-" if row.mean_error is None else f"{row.mean_error:.4f}"
            lines.append(f"  {row.method:<14} {row.status:<13} mean error {error:>7}  {row.seconds:8.2f} s")
        return "\n".join(lines)

    def title(self) -> str:
        """Names the reference that errors are measured against."""
        return f"comparison against {self.reference or 'nothing'}"

    def facts(self) -> dict[str, str]:
        """Number of methods that have answered, and the reference."""
        return {"methods": str(len(self.rows)), "against": self.reference or "nothing"}

    def contents(self) -> dict[str, Any]:
        """The reference and the rows."""
        return {"reference": self.reference, "rows": [asdict(row) for row in self.rows]}

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name, with a row for every method."""
        return {f.name: [getattr(row, f.name) for row in self.rows] for f in fields(Row)}

    def shown_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The method, its verdict, mean error and seconds of every row."""
        rows: list[tuple[Any, ...]] = [
            (row.method, row.status, "-" if row.mean_error is None else f"{row.mean_error:.4g}", f"{row.seconds:.3g}")
            for row in self.rows
        ]
        return ("method", "status", "mean error", "seconds"), rows

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
            mean = max(row.mean_error or 0.0, floor)
            top = max(row.max_error or 0.0, floor)
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
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
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
    backend : {"cpu", "cuda", "auto"}
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
    compared = _compared_methods(methods, memory_limit)
    given = _given_marginals(model, reference)
    limit = check_seconds(time_limit)

    # Exact inference is tried anyway, as the reference.
    chosen = compared
    if not any(method.name == "exact" for method in compared.values()):
        chosen = {"exact": _make("exact", memory_limit)} | compared
    exact_first = dict(sorted(chosen.items(), key=lambda item: item[1].name != "exact"))

    options = {
        "methods": list(compared),
        "memory_limit": memory_limit,
        "reference": None if given is None else reference_name,
        "backend": backend,
    }
    with open_context(
        "compare",
        model,
        evidence=evidence,
        seed=seed,
        num_threads=num_threads,
        backend=backend,
        progress=progress,
        options=options,
    ) as context:
        # The limit and the seed are those of each method: nothing limits all of them together.
        context = replace(context, options={**context.options, "time_limit": limit}, seed_given=True)
        answers = _Answers(exact_first)
        with Ending() as ending:
            answers.run(context, limit, None if limit is None else len(compared) * limit)
        if ending.interrupted:
            answers.interrupt(ending, context)
        believed = None if given is None else reference_name
        trusted = given
        own = answers.reference(or_another=given is None)
        if own is not None:
            believed = own
            trusted = answers.results[own].node_marginals
        return context.finish(
            Comparison(
                model=model,
                reference=believed,
                rows=tuple(answers.row(label, model, trusted) for label in compared if answers.has(label)),
                results=answers.results,
                status=Status.INTERRUPTED if ending.interrupted else Status.OK,
                stats={"stopped_by": ending.by},
            )
        )


def _compared_methods(methods: Sequence[str | Method] | None, memory_limit: float | None) -> dict[str, Method]:
    """The methods that get a row, by label: those that the user named, by default all that take a time limit."""
    wanted: Sequence[str | Method] = [name for name in method_names() if name not in _NOT_COMPARED]
    if methods is not None:
        wanted = as_list("methods", methods, "a list of methods or of their names")
    if not wanted:
        raise ValueError(f"methods must name at least one of {', '.join(method_names())}, got none")
    return _by_label([_make(item, memory_limit) for item in wanted])


def _given_marginals(model: MarkovRandomField, reference: ArrayLike | None) -> FloatArray | None:
    """Marginals that the user trusts, aligned with ``model.log_unary``; None where none were given."""
    if reference is None:
        return None
    given = as_float_array("reference", reference)
    if given.shape != model.log_unary.shape:
        raise ValueError(f"reference must have {len(model.log_unary)} numbers, one per state, got shape {given.shape}")
    return given


class _Answers:
    """The answers and refusals of the methods of a comparison so far, and the seconds that they took."""

    def __init__(self, chosen: Mapping[str, Method]) -> None:
        self.chosen = chosen
        self.results: dict[str, InferenceResult] = {}
        self.refused: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self._latest = ""
        self._clock = Clock()

    def run(self, context: Context, limit: float | None, exact_limit: float | None) -> None:
        """Run one method after the other, each as :func:`fastmix.infer` does with the seed of the comparison."""
        assert context.model is not None
        for number, (name, method) in enumerate(self.chosen.items()):
            self._latest = name
            self._clock = Clock(listener=context.clock.listener, what=name)
            self._clock.report(number, len(self.chosen), "methods")
            try:
                self.results[name] = infer(
                    context.model, method=method, evidence=context.evidence, progress=None, seed=context.seed,
                    time_limit=exact_limit if method.name == "exact" else limit, num_threads=context.num_threads,
                    backend=context.backend if method.on_gpu else "cpu",
                )  # fmt: skip
            except FastmixError as error:
                if method.name == "exact" and not isinstance(error, ResourceError):
                    raise  # the model or the evidence is at fault: no other method can do better
                self.refused[name] = str(error)
            self.seconds[name] = self._clock.seconds()

    def interrupt(self, ending: Ending, context: Context) -> None:
        """Keep the result so far of the method that was interrupted, if it has one."""
        if ending.result is not None:
            self.results[self._latest] = ending.result
        elif not self.results:
            context.raise_nothing(ending.by)
        self.seconds[self._latest] = self._clock.seconds()

    def reference(self, *, or_another: bool) -> str | None:
        """Label of the method whose answer serves as the reference, None without one.

        That is exact inference, or, with ``or_another``, the first of some methods whose answer is ``ok``.
        """
        names = ("exact", *_REFERENCES) if or_another else ("exact",)
        for name in names:
            for label, result in self.results.items():
                if self.chosen[label].name == name and (name == "exact" or result.status == "ok"):
                    return label
        return None

    def has(self, name: str) -> bool:
        """Whether there is an answer, or a refusal, of a method already."""
        return name in self.results or name in self.refused

    def row(self, name: str, model: MarkovRandomField, trusted: FloatArray | None) -> Row:
        """The row of a method."""
        if name in self.refused:
            return Row(name, "refused", seconds=self.seconds[name], note=self.refused[name])
        return _row(model, name, self.results[name], trusted, self.seconds[name])


def _make(item: str | Method, memory_limit: float | None) -> Method:
    """The method itself, or the one with a name, with the memory limit where it has that option."""
    found = type(item) if isinstance(item, Method) else find_method(item, "methods")
    limited = not isinstance(item, Method) and "memory_limit" in options_of(found)
    return make_method(item, {"memory_limit": memory_limit} if limited else {})


def _by_label(methods: Sequence[Method]) -> dict[str, Method]:
    """Methods by their labels: the name of each, with its settings where several methods have that name.

    Settings that are the default are left out. Methods with the same settings are one.
    """
    different: list[Method] = []
    for method in methods:
        if not any(_is_same(method, other) for other in different):
            different.append(method)
    counts = Counter(method.name for method in different)
    labeled: dict[str, Method] = {}
    for method in different:
        name = method.name
        settings = ", ".join(f"{option}={value}" for option, value in _settings(method).items())
        if counts[name] > 1 and settings:
            name = f"{name}({settings})"
        # Options that are shown alike, such as large arrays, are told apart by a number.
        label = name
        number = 2
        while label in labeled:
            label = f"{name} #{number}"
            number += 1
        labeled[label] = method
    return labeled


def _is_same(method: Method, other: Method) -> bool:
    """Whether two methods have the same settings; arrays among them are not compared."""
    try:
        return method is other or bool(method == other)
    except ValueError:
        return False


def _settings(method: Method) -> dict[str, str]:
    """Options of a method that are not the default, as texts by name."""
    plain = {field.name: repr(getattr(method, field.name)) for field in fields(method)}
    usual = {field.name: repr(field.default) for field in fields(method)}
    return {name: text for name, text in plain.items() if text != usual[name]}


def _row(
    model: MarkovRandomField, name: str, result: InferenceResult, trusted: FloatArray | None, seconds: float
) -> Row:
    """The row of a method that has answered."""
    from fastmix.inference.projected import ProjectedResult

    mean_error: float | None = None
    max_error: float | None = None
    if trusted is not None and result.log_z_kind != "zero":
        error = marginal_errors(model, result.node_marginals, trusted)
        mean_error = float(error.mean()) if len(error) else 0.0
        max_error = _largest(error)
    return Row(
        method=name,
        status=str(result.status),
        mean_error=mean_error,
        max_error=max_error,
        std_error=_largest(result.std_error),
        projected_std_error=_largest(result.projected_std_error) if isinstance(result, ProjectedResult) else None,
        log_z=result.log_z,
        log_z_kind=result.log_z_kind,
        seconds=seconds,
        note=str(result.stats.get("reason") or result.stats.get("guarantee", "")),
    )


def _largest(errors: FloatArray | None) -> float | None:
    """The largest of some errors, 0 where there are none of them; None for None."""
    return None if errors is None else float(errors.max(initial=0.0))
