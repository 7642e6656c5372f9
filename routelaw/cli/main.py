"""The command line: parse, call, print. Every command imports what it needs when it runs, so `--help` is instant."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import typer

from routelaw.cli import (
    bench,
    compare,
    corpus,
    count,
    data,
    demo,
    epc,
    fit,
    plan,
    report,
    reproduce,
    runs,
    sweep,
    train,
)
from routelaw.cli import eval as evaluate
from routelaw.errors import LOST_CONTACT, InputError, LostContact

app = typer.Typer(
    name="routelaw",
    help="The workbench for routed language models and their scaling laws.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Rich's help costs as much as everything else at start
)
app.command(short_help="Fit a law to losses, and judge it")(fit.fit)
app.command(short_help="Rank laws, and routers, with their noise")(compare.compare)
app.command(short_help="The dense model that a routed one equals")(epc.epc)
app.add_typer(plan.app, name="plan", short_help="The best model for a budget")
app.command(short_help="The paper's tables and figures, redone")(reproduce.reproduce)
app.command(short_help="Train one run, or go on with it")(train.train)
app.command(short_help="Train every run of a grid, or go on")(sweep.sweep)
app.add_typer(runs.app, name="runs", short_help="The runs of a store: list, show, export …")
app.command(short_help="A page on a store or a table of losses")(report.report)
app.command("eval", short_help="Likelihood of texts under a run")(evaluate.evaluate)
app.command(short_help="How fast it is here, against baselines")(bench.bench)
app.command(short_help="Parameters and FLOPs of a model, exactly")(count.count)
app.add_typer(corpus.app, name="corpus", short_help="Turn text into tokens")
app.add_typer(data.app, name="data", short_help="The losses released with the paper")
app.command(short_help="Tiny models, their laws and a page, in minutes")(demo.demo)


def main() -> None:
    """Entry point: a user's mistake is one sentence on stderr and exit code 2."""
    try:
        app()
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except LostContact as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(LOST_CONTACT)
    except OSError as error:
        # A full disk behind stdout, say. (A reader such as head that goes away is Rich's and Typer's to handle.)
        sys.stderr.write(f"error: {error.filename or 'the output'}: {error.strerror or error}.\n")
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more to flush at exit
        sys.exit(2)


if __name__ == "__main__":
    main()
