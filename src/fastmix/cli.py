"""The command line: ``fastmix VERB MODEL [options]``."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Annotated, Any, cast

import typer

from fastmix import __version__
from fastmix.errors import BadFileError, FastmixError, NotConvergedError

__all__ = ["app", "main"]

_INTERRUPTED = 130  # what the parser makes of Ctrl-C; no command uses it

app = typer.Typer(
    help="Marginal inference in discrete pairwise Markov random fields, with guarantees.",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
generate = typer.Typer(help="Write a random model.", rich_markup_mode=None)
app.add_typer(generate, name="generate")

Model = Annotated[str, typer.Argument(metavar="MODEL", help="UAI or npz file, plain, gzip or xz; - is stdin.")]
Evidence = Annotated[str | None, typer.Option("--evidence", "-e", metavar="FILE", help="Observed states (UAI).")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout.")]


def _version(value: bool) -> None:
    if value:
        print(f"fastmix {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def info(model: Model, evidence: Evidence = None, as_json: AsJson = False) -> None:
    """Size, state counts, zeros and treewidth of a model."""
    from fastmix import console
    from fastmix.description import describe_model

    loaded, observed = console.load(model, evidence)
    with console.blaming_input(model, evidence):
        facts = describe_model(loaded, observed)
    if as_json:
        console.emit_json(facts)
    else:
        console.show_facts(model, {k.replace("_", " "): _readable(v) for k, v in facts.items() if k != "provenance"})


NumChains = Annotated[int | None, typer.Option(help="Independent chains; 64 by default.")]
NumSweeps = Annotated[int | None, typer.Option(help="Sweeps averaged in every chain; 10,000 by default.")]
BurnIn = Annotated[int | None, typer.Option(help="Sweeps before; a tenth of --num-sweeps by default.")]
Accuracy = Annotated[
    float | None, typer.Option(help="Instead of sweeps: error to reach with 95 % confidence, for certified models.")
]
AnySeed = Annotated[int | None, typer.Option(help="The same seed gives the same answer; drawn when not given.")]
TimeLimit = Annotated[float | None, typer.Option(metavar="SECONDS", help="Return what there is after this time.")]
CheckpointFile = Annotated[
    str | None, typer.Option("--checkpoint", metavar="FILE", help="Save the run here, and go on from it if it exists.")
]


@app.command()
def infer(
    model: Model,
    method: Annotated[
        str, typer.Option(help="exact: junction tree, for small treewidth; gibbs, swendsen-wang: sampling.")
    ] = "exact",
    evidence: Evidence = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="FILE.MAR marginals, FILE.PR log10 Z, FILE.json all."),
    ] = None,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Such as 4GiB; half of the free memory by default.")
    ] = None,
    num_chains: NumChains = None,
    num_sweeps: NumSweeps = None,
    burn_in: BurnIn = None,
    accuracy: Accuracy = None,
    seed: AnySeed = None,
    time_limit: TimeLimit = None,
    checkpoint: CheckpointFile = None,
    as_json: AsJson = False,
) -> None:
    """Marginals of every variable, and log Z where the method has it."""
    import fastmix
    from fastmix import console
    from fastmix.inference import METHODS
    from fastmix.resources import parse_bytes

    if method not in METHODS:
        raise ValueError(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    if output == "-" and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    limit = None if memory_limit is None else parse_bytes(memory_limit)
    loaded, observed = console.load(model, evidence)
    with console.blaming_input(model, evidence), console.working(f"{method} inference") as progress:
        result = fastmix.infer(
            loaded, method=method, evidence=observed, memory_limit=limit, num_chains=num_chains, num_sweeps=num_sweeps,
            burn_in=burn_in, accuracy=accuracy, seed=seed, time_limit=time_limit, checkpoint=checkpoint,
            progress=progress,
        )  # fmt: skip
    if output is not None:
        console.save_answer(result, output)
    if as_json:
        console.emit_json(result.to_dict())
    elif output is None:
        console.show_marginals(result)
    if result.status != "ok":
        if output is not None or as_json:
            console.message(f"status {result.status}: {result.status.advice}")
        raise typer.Exit(1)


@app.command()
def sample(
    model: Model,
    method: Annotated[str, typer.Option(help="gibbs or swendsen-wang.")] = "gibbs",
    num_chains: NumChains = None,
    num_sweeps: NumSweeps = None,
    burn_in: BurnIn = None,
    num_draws: Annotated[int | None, typer.Option(help="Draws kept of every chain; one by default.")] = None,
    schedule: Annotated[str, typer.Option(help="Order of updates: systematic or random.")] = "systematic",
    seed: AnySeed = None,
    num_threads: Annotated[int | None, typer.Option(help="All cores by default; does not change the draws.")] = None,
    time_limit: TimeLimit = None,
    checkpoint: CheckpointFile = None,
    evidence: Evidence = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE.npz", help="Where the draws go.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw configurations by Markov chains; a summary without -o."""
    import fastmix
    from fastmix import console

    if output is not None and not output.endswith(".npz"):
        raise ValueError(f"-o must name an .npz file, got {output!r}")
    loaded, observed = console.load(model, evidence)
    kept = num_draws if num_draws is not None else int(output is not None)
    with console.blaming_input(model, evidence), console.working("sampling") as progress:
        result = fastmix.sample(
            loaded, method=cast("Any", method), num_chains=num_chains, num_sweeps=num_sweeps, burn_in=burn_in,
            num_draws=kept, schedule=cast("Any", schedule), seed=seed, num_threads=num_threads, evidence=observed,
            time_limit=time_limit, checkpoint=checkpoint, progress=progress,
        )  # fmt: skip
    if output is not None:
        console.save_draws(result, output)
    if as_json:
        console.emit_json(result.to_dict())
    else:
        console.show_sampling(model, result)
    if result.status != "ok":
        raise typer.Exit(1)


@app.command()
def certify(
    model: Model,
    accuracy: Annotated[float, typer.Option(help="Total variation distance to reach, between 0 and 1.")] = 0.01,
    bound: Annotated[str, typer.Option(help="Dependency bound: exact, sigmoid, range, l1 or linf.")] = "sigmoid",
    norm: Annotated[
        str | None, typer.Option(help="spectral, inf, 1 or frobenius; the smallest of them by default.")
    ] = None,
    schedule: Annotated[str, typer.Option(help="Order of updates: systematic or random.")] = "systematic",
    per_variable: Annotated[
        bool, typer.Option("--per-variable", help="Accuracy of every marginal instead of the joint distribution.")
    ] = False,
    evidence: Evidence = None,
    as_json: AsJson = False,
) -> None:
    """Whether Gibbs sampling provably mixes, and in how many sweeps; exit code 1 when not certified."""
    import fastmix
    from fastmix import console

    loaded, observed = console.load(model, evidence)
    with console.working("certifying"):
        certificate = fastmix.certify(
            loaded.condition(observed) if observed else loaded,
            accuracy=accuracy,
            bound=cast("Any", bound),  # checked by the call
            norm=cast("Any", norm),
            schedule=cast("Any", schedule),
            per_variable=per_variable,
        )
    if as_json:
        console.emit_json(certificate.to_dict())
    else:
        console.show_certificate(model, certificate)
    if not certificate.certified:
        raise typer.Exit(1)


@app.command()
def project(
    model: Model,
    norm_bound: Annotated[float, typer.Option(help="Largest norm allowed; below 1 the result provably mixes fast.")],
    norm: Annotated[str, typer.Option(help="inf, spectral, 1 or frobenius.")] = "inf",
    bound: Annotated[str, typer.Option(help="Dependency bound: range or linf.")] = "range",
    solver: Annotated[str, typer.Option(help="fast, or paper for the dual of the paper.")] = "fast",
    tol: Annotated[float, typer.Option(help="Relative duality gap.")] = 1e-6,
    max_iter: Annotated[int, typer.Option(help="Iterations allowed.")] = 10_000,
    evidence: Evidence = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Where the projected model goes.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The closest model with a bounded dependency norm; UAI text on stdout without -o and --json."""
    import fastmix
    from fastmix import console
    from fastmix.projection import PaperDual

    if output == "-" and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    if solver not in ("fast", "paper"):
        raise ValueError(f"--solver must be fast or paper, got {solver!r}")
    loaded, observed = console.load(model, evidence)
    code = 0
    with console.working("projecting"):
        try:
            result = fastmix.project(
                loaded.condition(observed) if observed else loaded,
                norm_bound=norm_bound,
                norm=cast("Any", norm),  # checked by the call
                bound=cast("Any", bound),
                tol=tol,
                max_iter=max_iter,
                solver="fast" if solver == "fast" else PaperDual(),
            )
        except NotConvergedError as error:
            console.message(str(error))
            result, code = error.result, 1
    if output or not as_json:
        console.save_model(result.model, output or "-")
    if as_json:
        console.emit_json(result.to_dict())
    else:
        console.message(
            f"norm {result.norm_before:.6g} -> {result.norm_after:.6g} ({norm}, {bound}), "
            f"squared distance {result.squared_distance:.6g}, duality gap {result.duality_gap:.3g}, "
            f"{result.stats['seconds']:.3g} s"
        )
    if code:
        raise typer.Exit(code)


@app.command()
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="UAI or npz file; - is stdin.")],
    target: Annotated[str, typer.Argument(metavar="OUT", help=".uai, .uai.gz, .uai.xz or .npz; - is UAI to stdout.")],
    evidence: Annotated[
        str | None, typer.Option("--evidence", "-e", metavar="FILE", help="Condition on these states first.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a model in another format, optionally given evidence."""
    from fastmix import console

    loaded, observed = console.load(source, evidence)
    if observed:
        with console.blaming_input(source, evidence):
            loaded = loaded.condition(observed)
    _save(loaded, target, as_json, source=source, evidence=evidence)


def _save(model: Any, output: str | None, as_json: bool, *, seed: int | None = None, **options: Any) -> None:
    from fastmix import console
    from fastmix.results import provenance

    if output == "-" and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    start = time.perf_counter()
    if output is not None or not as_json:
        console.save_model(model, "-" if output is None else output)
    if as_json:
        facts = {"num_variables": model.num_variables, "num_edges": model.num_edges, "output": output}
        facts["seconds"] = time.perf_counter() - start
        console.emit_json({**facts, "provenance": provenance(model, seed=seed, **options)})


CouplingMax = Annotated[float, typer.Option(help="Couplings are uniform up to this strength.")]
Attractive = Annotated[bool, typer.Option("--attractive/--mixed", help="Couplings from 0, or from minus the maximum.")]
FieldMax = Annotated[float, typer.Option(help="Fields are uniform between minus and plus this.")]
Torus = Annotated[bool, typer.Option("--torus", help="Join opposite borders.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same model.")]
Rows = Annotated[int, typer.Option(help="Rows of the grid.")]
Cols = Annotated[int, typer.Option(help="Columns of the grid.")]
Variables = Annotated[int, typer.Option("--num-variables", help="Number of variables.")]


@generate.command("ising-grid")
def _ising_grid(
    rows: Rows = 16, cols: Cols = 16, coupling_max: CouplingMax = 1.0, attractive: Attractive = False,
    field_max: FieldMax = 1.0, torus: Torus = False, seed: Seed = 0, output: Output = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Binary variables on a rectangular grid."""
    _generate("ising_grid", output, as_json, rows, cols, coupling_max=coupling_max, attractive=attractive,
              field_max=field_max, torus=torus, seed=seed)  # fmt: skip


@generate.command("potts-grid")
def _potts_grid(
    rows: Rows = 8, cols: Cols = 8, num_states: Annotated[int, typer.Option(help="States of each variable.")] = 3,
    coupling_max: CouplingMax = 1.0, attractive: Attractive = False, field_max: FieldMax = 1.0, torus: Torus = False,
    seed: Seed = 0, output: Output = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Potts variables on a rectangular grid."""
    _generate("potts_grid", output, as_json, rows, cols, num_states=num_states, coupling_max=coupling_max,
              attractive=attractive, field_max=field_max, torus=torus, seed=seed)  # fmt: skip


@generate.command("ising-random")
def _ising_random(
    num_variables: Variables = 10, edge_probability: Annotated[float, typer.Option(help="Of every pair.")] = 0.5,
    coupling_max: CouplingMax = 1.0, attractive: Attractive = False, field_max: FieldMax = 1.0, seed: Seed = 0,
    output: Output = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Binary variables on an Erdos-Renyi graph."""
    _generate("ising_random", output, as_json, num_variables, edge_probability=edge_probability,
              coupling_max=coupling_max, attractive=attractive, field_max=field_max, seed=seed)  # fmt: skip


@generate.command("ising-bipartite")
def _ising_bipartite(
    left: Annotated[int, typer.Option(help="Variables of one side.")] = 22,
    right: Annotated[int, typer.Option(help="Variables of the other side.")] = 22,
    coupling_max: CouplingMax = 1.0, attractive: Attractive = False, field_max: FieldMax = 1.0, seed: Seed = 0,
    output: Output = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Binary variables on a complete bipartite graph."""
    _generate("ising_bipartite", output, as_json, left, right, coupling_max=coupling_max, attractive=attractive,
              field_max=field_max, seed=seed)  # fmt: skip


@generate.command("ising-regular")
def _ising_regular(
    num_variables: Variables = 100, degree: Annotated[int, typer.Option(help="Neighbours of every variable.")] = 3,
    coupling_max: CouplingMax = 1.0, attractive: Attractive = False, field_max: FieldMax = 1.0, seed: Seed = 0,
    output: Output = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Binary variables on a random regular graph."""
    _generate("ising_regular", output, as_json, num_variables, degree, coupling_max=coupling_max,
              attractive=attractive, field_max=field_max, seed=seed)  # fmt: skip


@generate.command("ising-tree")
def _ising_tree(
    num_variables: Variables = 100, coupling_max: CouplingMax = 1.0, attractive: Attractive = False,
    field_max: FieldMax = 1.0, seed: Seed = 0, output: Output = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Binary variables on a random tree."""
    _generate("ising_tree", output, as_json, num_variables, coupling_max=coupling_max, attractive=attractive,
              field_max=field_max, seed=seed)  # fmt: skip


def _generate(kind: str, output: str | None, as_json: bool, *sizes: int, seed: int, **options: Any) -> None:
    from fastmix import instances

    model = getattr(instances, kind)(*sizes, seed=seed, **options)
    _save(model, output, as_json, seed=seed, kind=kind, sizes=list(sizes), **options)


def _readable(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return " to ".join(f"{v:,}" for v in sorted(set(value)))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code; errors become one line on stderr, never a traceback."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, before)
    sys.exit(code)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Ctrl-C is a KeyboardInterrupt, except within imports and the compiler: there the process ends at once."""
    # Callbacks of LLVM swallow exceptions or crash on them, and half-done imports are of no use to anyone.
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.split(".")[0] in ("numba", "llvmlite") or frame.f_code.co_filename.startswith("<frozen importlib"):
            if sys.stderr.isatty():
                os.write(2, b"\r\x1b[2K\x1b[?25h")  # the line and the cursor that the spinner took
            os.write(2, b"fastmix: interrupted\n")
            os._exit(1)
        frame = frame.f_back
    raise KeyboardInterrupt


def _run(arguments: list[str]) -> int:
    try:
        _replace_closed_streams()
        code = app(arguments, prog_name="fastmix", standalone_mode=False)
        sys.stdout.flush()
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except typer.Exit as done:
        return done.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", 1)
    except (BrokenPipeError, SystemExit):  # the parser and rich leave with SystemExit when a pipe is closed
        _abandon_stdout()  # its reader has left: nothing to say, and nobody to say it to
        return 0
    except BadFileError as error:
        return _fail(str(error), 3)
    except NotConvergedError as error:
        return _fail(str(error), 1)
    except OSError as error:
        _abandon_stdout()
        return _fail(f"{error.filename or 'output'}: {error.strerror or error}", 2)
    except (FastmixError, ValueError, MemoryError) as error:
        return _fail(str(error) or type(error).__name__, 2)
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the parser
            return _fail(f"{error.format_message()} (fastmix --help shows how)", 2)
        raise


def _replace_closed_streams() -> None:
    """Standard streams that were closed by the caller fail when they are used, not by being None."""
    # Opened the wrong way round, the null device answers with "Bad file descriptor".
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _abandon_stdout() -> None:
    """What is still to be written to stdout goes nowhere, so that Python's last flush cannot fail."""
    with contextlib.suppress(OSError):  # a stand-in has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(text: str, code: int) -> int:
    print(f"fastmix: {' '.join(text.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
