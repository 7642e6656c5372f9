"""Other places to watch a run from, besides its own log: TensorBoard, and Weights & Biases where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from routelaw.errors import InputError
from routelaw.specs.files import to_mapping
from routelaw.specs.run import RunSpec
from routelaw.training.run import Progress

Track = Callable[[Progress], None]


@contextmanager
def tracking(name: str | None, folder: Path, spec: RunSpec, every: int) -> Iterator[Track]:
    """A function to call after each step; every so many steps, and at evaluations, it passes the figures on."""
    if name is None:
        yield lambda _: None
        return
    if name not in _TRACKERS:
        raise InputError(f"--track is {' or '.join(_TRACKERS)}, not {name!r}.")
    with _TRACKERS[name](folder, spec) as write:

        def track(progress: Progress) -> None:
            if progress.info.step % every == 0 or progress.losses:
                write(progress.info.step, scalars(progress))

        yield track


def scalars(progress: Progress) -> dict[str, float]:
    """Every figure of a step by name; per-expert loads stay in the log."""
    info = progress.info
    figures: dict[str, Any] = {
        "train/loss": info.loss,
        "train/gradient_norm": info.gradient_norm,
        "train/learning_rate": info.learning_rate,
        "train/skipped": float(info.skipped + sum(info.earlier)),
        "train/tokens_per_second": progress.tokens_per_second,
    }
    for layer in info.layers:
        own = {"dropped": layer.dropped, "oversubscribed": layer.oversubscribed, "load_entropy": layer.load_entropy}
        for key, value in (own | layer.losses | layer.metrics).items():
            figures[f"block_{layer.block}/{key}"] = value
    figures |= {f"evaluation/{key}": value for key, value in (progress.losses or {}).items()}
    return {key: value for key, value in figures.items() if value is not None}


@contextmanager
def _tensorboard(folder: Path, spec: RunSpec) -> Iterator[Callable[[int, dict[str, float]], None]]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("--track tensorboard needs TensorBoard: pip install 'routelaw[track]'.") from None
    writers: list[Any] = []

    def write(step: int, figures: dict[str, float]) -> None:
        if not writers:  # what an interrupted process wrote beyond this step is hidden
            writers.append(SummaryWriter(str(folder / "tensorboard"), purge_step=step))
        for name, value in figures.items():
            writers[0].add_scalar(name, value, step)

    try:
        yield write
    finally:
        for writer in writers:
            writer.close()


@contextmanager
def _wandb(folder: Path, spec: RunSpec) -> Iterator[Callable[[int, dict[str, float]], None]]:
    try:
        import wandb  # pyrefly: ignore
    except ImportError:
        raise InputError("--track wandb needs Weights & Biases: pip install wandb.") from None
    session = wandb.init(project="routelaw", id=spec.run_id, resume="allow", dir=str(folder), config=to_mapping(spec))
    try:
        yield lambda step, figures: session.log(figures, step=step)
    finally:
        session.finish()


_TRACKERS = {"tensorboard": _tensorboard, "wandb": _wandb}
