"""The command line: parse, call, print. Every command imports what it needs when it runs, so `--help` is instant."""

from __future__ import annotations

import sys

import typer

from routelaw.cli import compare, count, data, demo, epc, fit, plan, reproduce
from routelaw.errors import InputError

app = typer.Typer(
    name="routelaw",
    help="The workbench for routed language models and their scaling laws.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command()(fit.fit)
app.command()(compare.compare)
app.command()(epc.epc)
app.add_typer(plan.app, name="plan")
app.command()(reproduce.reproduce)
app.command()(count.count)
app.add_typer(data.app, name="data")
app.command()(demo.demo)


def main() -> None:
    """Entry point: a user's mistake is one sentence on stderr and exit code 2."""
    try:
        app()
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except BrokenPipeError:
        # The reader (head, less) went away: not an error, but stdout must not be flushed again at exit.
        sys.stderr.close()
        sys.exit(0)


if __name__ == "__main__":
    main()
