"""A run's model as its newest whole checkpoint left it, with the tokenizer it reads text with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from routelaw.corpus.tokenizer import Tokenizer
from routelaw.errors import InputError
from routelaw.model.transformer import Transformer
from routelaw.routers.router import check_plugin
from routelaw.specs.run import RunSpec
from routelaw.training.checkpoint import MODEL, fitting_tensors, latest_checkpoint
from routelaw.training.device import prepare, resolve_device, resolve_precision
from routelaw.training.folder import RunFolder


@dataclass(frozen=True)
class Trained:
    spec: RunSpec
    step: int
    model: Transformer
    tokenizer: Tokenizer
    device: torch.device


def open_trained(
    folder: Path,
    device: str = "auto",
    precision: str = "auto",
    notice: Callable[[str], None] = lambda _: None,
) -> Trained:
    files = RunFolder(folder)
    spec, tokenizer = files.spec(), files.tokenizer()
    if spec.routed_blocks:
        check_plugin(spec.router)
    where = resolve_device(device)
    saved = latest_checkpoint(files.checkpoints, spec, notice, parts=(MODEL,))
    if saved is None:
        raise InputError(f"{folder} has no whole checkpoint to evaluate.")
    model = Transformer(spec)
    with fitting_tensors(saved):
        model.load_state_dict(saved.model)
    dtype = resolve_precision(precision, where)
    prepare(where, dtype, notice)
    model.to(device=where, dtype=dtype)
    return Trained(spec, saved.step, model, tokenizer, where)
