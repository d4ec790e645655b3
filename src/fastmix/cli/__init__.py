"""The command line: ``fastmix VERB MODEL [options]``."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import FrameType
from typing import Annotated, Any

import typer

from fastmix import __version__
from fastmix._clock import is_compiling
from fastmix._stopping import HEARD, exit_code, leave_now
from fastmix.cli import answers, applications, learning, models
from fastmix.cli.console import abandon, explain, flush_stderr, say
from fastmix.cli.options import names_of, with_options
from fastmix.errors import FastmixError, printable, shortened

__all__ = ["main"]

_STOPPED: list[int] = []  # signals that came

_COMMANDS = (
    models.info, answers.infer, answers.map_, answers.compare, answers.sample, answers.temper, models.certify,
    models.bracket, models.project, learning.learn, learning.score, applications.denoise, applications.experiment,
    models.convert, applications.warm_up,
)  # fmt: skip


def _make_parser(arguments: list[str]) -> Any:
    """The parser of the command that is called, whose options alone are looked up."""
    app = typer.Typer(
        help="Marginal inference in discrete Markov random fields, with guarantees.",
        add_completion=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    named = {command.__name__.rstrip("_").replace("_", "-"): command for command in _COMMANDS}
    called = arguments[0] if arguments else ""
    if called == "generate":
        app.add_typer(models.generate(), name=called)
    elif called in named:
        command = named[called]
        app.command(called)(with_options(command, _methods_of(command, arguments)))
    else:  # none of them: what there is, for a list
        for name, command in named.items():
            app.command(name, help=command.__doc__)(_nothing)
        app.command("generate", help="Write a random model.")(_nothing)
    return typer.main.get_command(app)


def _nothing() -> None:
    """Stands for a command that is not called."""


def _methods_of(command: Callable[..., None], arguments: list[str]) -> tuple[str, ...]:
    """The methods whose options a command takes; the one named alone, if that explains all options that are given."""
    if "options" not in inspect.signature(command).parameters:
        return ()
    if command is answers.temper:
        return ("tempered",)
    from fastmix.methods.base import find_method, method_names, options_of

    if command is answers.sample:
        from fastmix.methods.sampler import SAMPLERS

        return SAMPLERS
    named = "auto" if command is answers.infer else "annealed"
    for before, word in pairwise(["", *arguments]):
        if before == "--method" or word.startswith("--method="):
            named = word.removeprefix("--method=")
    given = {word[2:].partition("=")[0].replace("-", "_") for word in arguments if word.startswith("--")}
    known = {"json", *names_of(command)}
    with contextlib.suppress(FastmixError):  # which may be of a package that is not imported yet
        if "-h" not in arguments and given <= known | set(options_of(find_method(named))):
            return (named,)
    return method_names()


def _version(value: bool) -> None:
    if value:
        print(f"fastmix {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code; errors become one line on stderr, never a traceback."""
    with _hearing():
        code = _run(sys.argv[1:] if arguments is None else arguments)
    flush_stderr()
    if _STOPPED:  # in an import Python may note the interrupt for its own exit code, although it was handled
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        terminated = signal.SIGTERM in _STOPPED and code < 2
        os._exit(exit_code(signal.SIGTERM) if terminated else code)
    sys.exit(code)


@contextlib.contextmanager
def _hearing() -> Iterator[None]:
    """Signals that nobody else hears interrupt what is done within, in the main thread, which alone gets them."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {signum: signal.getsignal(signum) for signum in HEARD}
    ours = (signal.SIG_DFL, signal.default_int_handler, leave_now)
    for signum in [signum for signum, handler in before.items() if handler in ours]:
        signal.signal(signum, _interrupt)
    try:
        yield
    finally:
        for signum, handler in before.items():
            if signal.getsignal(signum) is _interrupt:
                signal.signal(signum, handler)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Signals are a KeyboardInterrupt, except while something compiles: there the process ends at once."""
    if is_compiling():  # callbacks of LLVM swallow exceptions or crash on them
        leave_now(signum, frame)
    _STOPPED.append(signum)
    raise KeyboardInterrupt


@contextlib.contextmanager
def _showing_messages() -> Iterator[None]:
    """That something is being compiled is the one message below a warning; those on checkpoints are shown always."""
    handler = logging.StreamHandler()
    loggers = [logging.getLogger(f"fastmix.{name}") for name in ("_jit", "methods.sampling_run")]
    before = loggers[0].level
    for logger in loggers:
        logger.addHandler(handler)
    loggers[0].setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        loggers[0].setLevel(before)


@_showing_messages()
def _run(arguments: list[str]) -> int:
    try:
        _prepare_streams()
        if "_FASTMIX_COMPLETE" in os.environ:  # a shell that completes a line has its words in the environment
            words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
            _make_parser(words.split()[1:])(prog_name="fastmix")
        code, parser = 0, _make_parser(arguments)
        try:
            with parser.make_context("fastmix", arguments or ["--help"]) as context:
                parser.invoke(context)
        except typer.Exit as done:
            code = done.exit_code
        sys.stdout.flush()
        return code
    except (BrokenPipeError, SystemExit):  # the parser and rich leave with SystemExit when a pipe is closed
        abandon(sys.stdout)  # its reader has left: nothing to say, and nobody to say it to
        return 0
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, OSError):
            abandon(sys.stdout)
        if (known := explain(error)) is not None:
            text, code = known
            return _fail(_as_typed(text, arguments), code)
        if sys.flags.dev_mode:
            raise
        text = f"{type(error).__name__}: {error}"
        return _fail(f"a mistake of fastmix, please report it: {text} (python -X dev -m fastmix shows where)", 2)


def _as_typed(text: str, arguments: list[str]) -> str:
    """A message of the library that begins with the name of an argument, with the option that stood for it."""
    name, _, rest = text.partition(" ")
    option = f"--{name.replace('_', '-')}"
    typed = any(word.partition("=")[0] == option for word in arguments)
    return f"{option} {rest}" if typed and rest.startswith("must") else text


def _prepare_streams() -> None:
    """Standard streams that were closed by the caller fail when they are used, not by being None."""
    # Opened the wrong way round, the null device answers with "Bad file descriptor".
    for name, flags, mode in (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode))
    if isinstance(sys.stdout, io.TextIOWrapper):  # what an encoding cannot show is escaped, as stderr does by itself
        sys.stdout.reconfigure(errors="backslashreplace")


def _fail(text: str, code: int) -> int:
    say(f"fastmix: {shortened(printable(' '.join(text.split())))}")
    return code
