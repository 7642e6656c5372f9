"""`routelaw corpus`: text made ready for training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelaw.cli import options

if TYPE_CHECKING:
    from routelaw.corpus import Corpus

app = typer.Typer(help="Turn text into tokens, and look at the result.", no_args_is_help=True)

FEW_DOCUMENTS = 10
"""Held out: fewer are worth a warning."""
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@app.command()
def build(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC…",
            help="Files, directories or patterns (.txt, .jsonl, also .gz, .xz, .zst; .parquet), or `python`: "
            "the library of this Python.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Directory to create.")],
    vocabulary: Annotated[int, typer.Option(help="Tokens of the tokenizer to train.")] = 32_000,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A SentencePiece model to use instead of training one.")
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(
            help="Share of documents held out (by hash); above 0, one at least.", show_default="0.005; python: 0.05"
        ),
    ] = None,
    documents: Annotated[
        str,
        typer.Option(
            help="A document of a .txt ends at a line of only <|endoftext|> (separator), or is a line, or a file."
        ),
    ] = "separator",
    key: Annotated[str, typer.Option(help="Key or column that holds the text of a record.")] = "text",
    errors: Annotated[str, typer.Option(help="Invalid UTF-8: strict stops, replace goes on with U+FFFD.")] = "strict",
    workers: Annotated[int | None, typer.Option(help="Processes that encode; all cores unless given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a corpus.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a tokenizer on text, encode the text on all cores, and hold some documents out."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from routelaw.corpus import Reading, build_corpus

    columns = (TextColumn("{task.description:<8}"), BarColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=as_json) as bar:
        tasks: dict[str, Any] = {}

        def progress(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase)
            bar.update(tasks[phase], completed=done, total=total)

        corpus = build_corpus(
            sources,
            out,
            vocabulary=vocabulary,
            tokenizer=tokenizer,
            validation=validation,
            reading=Reading(documents=documents, key=key, errors=errors),
            workers=workers,
            force=force,
            progress=progress,
        )
    _print(corpus, as_json)


@app.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A corpus.", show_default=False)],
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every byte and every token (needs the train extra).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what a corpus holds, after checking that it is whole."""
    from routelaw.corpus import open_corpus

    _print(open_corpus(path, verify=verify), as_json)


def _print(corpus: Corpus, as_json: bool) -> None:
    from routelaw.cli import output

    splits = {
        name: {"documents": s.documents, "tokens": len(s.tokens), "bytes": s.bytes} for name, s in corpus.splits.items()
    }
    if as_json:
        output.print_json(
            {
                "path": str(corpus.path),
                "id": corpus.id,
                "vocabulary": corpus.vocabulary,
                "end_of_text": corpus.end_of_text,
                **splits,
            }
        )
        return
    table = output.table(str(corpus.path), "split", "documents", "tokens", "bytes of text", "bytes per token")
    for name, figures in splits.items():
        per_token = f"{figures['bytes'] / figures['tokens']:.2f}" if figures["tokens"] else "–"
        table.add_row(name, *(f"{value:,}" for value in figures.values()), per_token)
    output.show(table, f"vocabulary {corpus.vocabulary:,}, id {corpus.id}")
    held_out = corpus.validation.documents
    if 0 < held_out < FEW_DOCUMENTS:
        output.show(
            f"! Only {held_out} document{'s are' if held_out > 1 else ' is'} held out: validation losses say little "
            "beyond them. A larger --validation holds out more."
        )


@app.command()
def balance(
    corpus: Annotated[Path, typer.Argument(help="A corpus directory.")],
    out: Annotated[Path | None, typer.Option(help="A picture to write (.png or .svg).")] = None,
    experts: Annotated[str, typer.Option(help="Numbers of experts.")] = "8,64,512",
    force: Annotated[bool, typer.Option("--force", help="Replace a picture that exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """How evenly the hash router would spread this corpus, for each of its schemes (needs the train extra)."""
    import io

    from routelaw.cli.output import print_json, show, table
    from routelaw.corpus.shards import open_corpus
    from routelaw.errors import InputError
    from routelaw.evaluation.hash_balance import balances
    from routelaw.figures.hash_balance import draw_balance
    from routelaw.files import write_atomically

    counts = options.numbers(experts, "--experts", int)
    if out is not None and out.suffix not in (".png", ".svg"):
        raise InputError(f"{out}: a picture is .png or .svg.")
    opened = open_corpus(corpus, verify=True)
    found = balances(opened, counts)
    if out is not None:
        picture = io.BytesIO()
        draw_balance(found).savefig(picture, format=out.suffix[1:], dpi=160)
        write_atomically(picture.getvalue(), out, force=force)
    rows = [
        {"experts": b.experts, "scheme": b.scheme, "fullest": b.load[0], "emptiest": b.load[-1], "over": b.overflow}
        for b in found
    ]
    if as_json:
        print_json({"corpus": opened.id, "balance": rows})
        return
    made = table("Tokens of an expert over an even share", "E, scheme", "fullest", "emptiest", "beyond capacity 2")
    for row in rows:
        made.add_row(
            f"{row['experts']}, {row['scheme']}",
            f"{row['fullest']:.2f}",
            f"{row['emptiest']:.2f}",
            f"{row['over']:.1%}",
        )
    show(made)
