"""`routelaw eval`: what a trained run makes of other texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelaw.cli.output import note

if TYPE_CHECKING:
    from routelaw.evaluation.measure import Trial


def evaluate(
    run: Annotated[
        Path, typer.Argument(help="A run's folder; its newest checkpoint is evaluated.", show_default=False)
    ],
    on: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=PATH",
            help="A corpus, or text (.txt, .jsonl, also .gz, .xz, .zst; .parquet). The name lambada asks for the last "
            "word of each passage.",
        ),
    ],
    stride: Annotated[
        int | None, typer.Option(help="Tokens by which windows move on; half a sequence unless given.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many documents or passages of each.")] = None,
    documents: Annotated[
        str | None, typer.Option(help="Of a .txt: separator, line or file; line for lambada.", show_default=False)
    ] = None,
    key: Annotated[str, typer.Option(help="Key or column that holds the text of a record.")] = "text",
    errors: Annotated[str, typer.Option(help="Invalid UTF-8: strict stops, replace goes on with U+FFFD.")] = "strict",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[int, typer.Option(min=0, max=1024, help="CPU threads; 0 is torch's choice.")] = 0,
    plugin: Annotated[
        list[Path] | None, typer.Option(help="The file that registers the run's router. Code, so only what you trust.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Measure nats per token, bits per byte and perplexity of texts, LAMBADA, and how the experts were used.

    Results are added to the run's eval.jsonl.
    """
    import torch

    from routelaw.cli.options import named_paths
    from routelaw.cli.output import print_json
    from routelaw.errors import InputError
    from routelaw.evaluation.measure import is_last_word
    from routelaw.routers.router import load_router
    from routelaw.training.trained import Run

    texts = named_paths(on, "--on")
    missing = [path for path in texts.values() if not path.exists()]
    if missing:
        raise InputError(f"{missing[0]}: there is no such file or folder.")
    if stride is not None and all(map(is_last_word, texts)):
        raise InputError("--stride has no effect where the last word of each passage is all that is measured.")
    for file in plugin or []:
        load_router(file)
    if threads:
        torch.set_num_threads(threads)
    opened = Run(run, device, notice=note)
    reading: dict[str, Any] = {"limit": limit, "documents": documents, "key": key, "errors": errors}
    trials = [
        opened.evaluate(path, name=name, stride=None if is_last_word(name) else stride, record=False, **reading)
        for name, path in texts.items()
    ]
    opened.record(trials)  # once all are known
    run_id, step = opened.spec.run_id, opened.trained.step
    if as_json:
        results = {trial.name: trial.as_dict() for trial in trials}
        print_json({"run_id": run_id, "step": step, "results": results})
    else:
        _show(run_id, step, trials)


def _show(run_id: str, step: int, trials: list[Trial]) -> None:
    from routelaw.cli.output import show, table

    made = table(
        f"{run_id} after {step:,} steps", "text", "tokens", "nats per token", "bits per byte", "perplexity", "accuracy"
    )
    for trial in trials:
        figures = trial.figures
        made.add_row(
            trial.name,
            f"{trial.tokens:,}",
            *(_cell(figures.get(key)) for key in ("nats_per_token", "bits_per_byte", "perplexity", "accuracy")),
        )
    show(made)
    loads = table("", "load, as a multiple of an even one", "block", "least used", "most used", "experts unused")
    for trial in trials:
        for block, shares in trial.load.items():
            even = [share * len(shares) for share in shares]
            loads.add_row(
                trial.name, str(block), f"{min(even):.2f}", f"{max(even):.2f}", str(sum(not s for s in shares))
            )
    if loads.row_count:
        show(loads)


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}" if value < 1e6 else f"{value:.3e}"
