"""The command line: parse, call, print. Every command imports what it needs when it runs, so `--help` is instant."""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from contextlib import suppress
from types import FrameType
from typing import NoReturn, TextIO

import typer

from routelaw.cli import (
    advise,
    bench,
    corpus,
    count,
    data,
    demo,
    figures,
    fit,
    league,
    plan,
    report,
    routers,
    runs,
    sweep,
    train,
)
from routelaw.cli import eval as evaluate
from routelaw.errors import LOST_CONTACT, InputError, LostContact
from routelaw.formatting import printable, shortened
from routelaw.plugins import fault_in_plugin

LONGEST_SENTENCE = 1500
TRACEBACK = "ROUTELAW_TRACEBACK"
"""Set in the environment by whoever writes a plugin and wants to see all of an error."""

app = typer.Typer(
    name="routelaw",
    help="The workbench for routed language models and their scaling laws.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Rich's help costs as much as everything else at start
)
app.command(short_help="Fit a law to losses, and judge it")(fit.fit)
app.command(short_help="Rank laws, and routers, with their noise")(fit.compare)
app.command(short_help="Every law on every table, by unseen runs")(league.league)
app.command(short_help="The paper's recommendations, on these runs")(advise.advise)
app.command(short_help="The dense model that a routed one equals")(plan.epc)
app.add_typer(plan.app, name="plan", short_help="The best model for a budget")
app.command(short_help="The paper's tables and figures, redone")(report.reproduce)
app.command(short_help="Train one run, or resume it")(train.train)
app.command(short_help="Train every run of a grid, or resume it")(sweep.sweep)
app.add_typer(runs.app, name="runs", short_help="The runs of a store: list, show, export …")
app.command(short_help="A page on a store or a table of losses")(report.report)
app.command(short_help="The paper's figures, of any runs")(figures.figures)
app.command("eval", short_help="Likelihood of other texts under runs")(evaluate.evaluate)
app.command(short_help="How fast it is here, against baselines")(bench.bench)
app.command(short_help="Parameters and FLOPs of a model, exactly")(count.count)
app.command(short_help="Routing techniques and their options")(routers.routers)
app.add_typer(corpus.app, name="corpus", short_help="Turn text into tokens")
app.add_typer(data.app, name="data", short_help="Public tables of losses: list, fetch, find")
app.command(short_help="Tiny models, their laws and a page, in minutes")(demo.demo)


def main() -> None:
    """Entry point: a user's mistake is one sentence on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without N̄ shows an escape, and goes on
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # pyrefly: ignore
            app()
    except BaseException as error:  # of a plugin there may be any kind
        _explain(error)
        raise  # a fault of ours, which a report needs whole; or the exit code of a command
    finally:
        signal.signal(signal.SIGTERM, before)


class Terminated(SystemExit):
    """SIGTERM has arrived: what is half written is taken away on the way out."""


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    """Until a command listens for itself, as `train` and `sweep` do."""
    raise Terminated(128 + signal.SIGTERM)


def _explain(error: BaseException) -> None:
    """End with one sentence and an exit code, where a user can mend what went wrong."""
    unheard = TRACEBACK in os.environ or isinstance(error, InputError | Terminated | KeyboardInterrupt)
    if not unheard and (fault := fault_in_plugin(error)):
        _exit(f"plugin {fault} ({TRACEBACK}=1 shows the way there).", 2)
    match error:
        case InputError():
            _exit(str(error), 2)
        case LostContact():
            _exit(str(error), LOST_CONTACT)
        case MemoryError():
            _exit("this takes more memory than there is: give it less at a time.", 2)
        case RecursionError():
            _exit("the input is nested too deeply.", 2)
        case RuntimeError() if str(error).startswith("Symlink loop"):  # as pathlib says it
            _exit(f"{error}: a link that leads to itself.", 2)
        case OSError():
            # A full disk behind stdout, say. (A reader such as head that goes away is Rich's and Typer's to handle.)
            name = error.filename or "the output"
            sys.stderr.write(f"error: {printable(f'{name}: {error.strerror or error}')}.\n")
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more to flush at exit
            sys.exit(2)


def _exit(sentence: str, code: int) -> NoReturn:
    sys.stderr.write(f"error: {shortened(printable(sentence), LONGEST_SENTENCE)}\n")
    sys.exit(code)


def _show_warning(
    message: Warning | str, category: type[Warning], _file: str, _line: int, *_rest: TextIO | str | None
) -> None:
    """A library's warning in one line, without a line of its code."""
    sys.stderr.write(f"warning: {printable(f'{message} ({category.__name__})')}\n")


if __name__ == "__main__":
    main()
