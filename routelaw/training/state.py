"""Everything that changes while a run goes on: model, optimiser, steps taken, and how it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from routelaw.corpus.shards import Corpus
from routelaw.model.parallel import ALONE, Parallel
from routelaw.model.transformer import Transformer
from routelaw.runs.store import DIVERGED, FINISHED, RUNNING
from routelaw.specs.run import RunSpec
from routelaw.training.checkpoint import COUNTERS, Checkpoint, fitting_tensors, latest_checkpoint, save_checkpoint
from routelaw.training.checkpoint_parts import resume_parts, save_parts
from routelaw.training.mesh import Meshes
from routelaw.training.optimizer import Optimizer
from routelaw.training.pieces import model_pieces, optimizer_pieces
from routelaw.training.step import StepInfo

MOST_SKIPPED = 20
"""Steps without a finite loss and gradient, in a row, after which a run has diverged."""


@dataclass
class TrainState:
    spec: RunSpec
    model: Transformer
    optimizer: Optimizer
    step: int = 0
    """Steps taken."""
    status: str = RUNNING
    skipped: int = 0
    skipped_in_a_row: int = 0
    loss_validation: float | None = None
    """At the last evaluation."""

    @classmethod
    def start(
        cls,
        spec: RunSpec,
        corpus: Corpus,
        device: torch.device,
        dtype: torch.dtype,
        parallel: Parallel = ALONE,
        meshes: Meshes | None = None,
        moments: torch.dtype | None = None,
    ) -> TrainState:
        """`moments`: the type of AdamW's, where it is not the masters'."""
        model = Transformer(spec, parallel)
        tell_token_counts(model, corpus)
        if meshes is None or parallel.batch.size == 1:
            masters = {name: parameter.detach() for name, parameter in model.to(device).named_parameters()}
            optimizer = Optimizer(model.to(dtype), spec.train, masters=masters, moments=moments)
        else:
            from routelaw.training.sharding import shard  # imports FSDP and the compiler, a second of CPU time

            # The masters are sharded, and come to the device as they are: never all of them whole.
            shard(model.to(torch.promote_types(dtype, torch.float32)), meshes, dtype)
            optimizer = Optimizer(model, spec.train)
        return cls(spec, model, optimizer)

    def resume(self, folder: Path, notice: Callable[[str], None]) -> None:
        """Continue from the newest whole checkpoint in the folder, if there is one, whatever layout wrote it."""
        if not self.model.parallel.alone:
            state = resume_parts(folder, self.spec, self.model, self.optimizer, notice)
            self.step = state.get("step", 0)
            for name, value in state.get("counters", {}).items():
                setattr(self, name, value)
            return
        saved = latest_checkpoint(folder, self.spec, notice, next(self.model.parameters()).device)
        if saved is None:
            return
        with fitting_tensors(saved):
            self.model.load_state_dict(saved.model)
            if not saved.optimizer and saved.step > saved.counters.get("skipped", 0):
                raise ValueError("it has steps and no state of the optimizer")
            self.optimizer.load(saved.optimizer, saved.model)
        self.step = saved.step
        for name, value in saved.counters.items():
            setattr(self, name, value)
        notice(f"continuing after step {saved.step} from {saved.path}.")

    def save(self, folder: Path, keep: int) -> None:
        counters = {name: getattr(self, name) for name in COUNTERS}
        if not self.model.parallel.alone:
            from routelaw.training.sharding import reshard

            reshard(self.model)
            pieces = {"model": model_pieces(self.model), "optimizer": optimizer_pieces(self.model, self.optimizer)}
            save_parts(folder, self.spec, self.step, counters, pieces, keep)
            return
        checkpoint = Checkpoint(self.step, dict(self.model.state_dict()), self.optimizer.state(), counters)
        save_checkpoint(folder, self.spec, checkpoint, keep)

    def record(self, info: StepInfo) -> None:
        self.step = info.step
        for skipped in (*info.earlier, info.skipped):
            self.skipped += skipped
            self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0
            if self.skipped_in_a_row >= MOST_SKIPPED:
                self.status = DIVERGED
        if self.status != DIVERGED and self.step == self.spec.train.steps:
            self.status = FINISHED

    def record_loss(self, loss: float | None) -> None:
        """A run cannot have finished without a loss."""
        self.loss_validation = loss
        if loss is None and self.status == FINISHED:
            self.status = DIVERGED


def tell_token_counts(model: Transformer, corpus: Corpus) -> None:
    """Routers that balance by frequency learn how often each token occurs; ids beyond the corpus's never do."""
    counts_V = torch.zeros(model.spec.model.vocabulary, dtype=torch.int64)
    counts_V[: corpus.vocabulary] = torch.from_numpy(corpus.train.frequencies_V.astype("int64"))
    for module in model.modules():
        if tell := getattr(module, "set_token_counts", None):
            tell(counts_V)
