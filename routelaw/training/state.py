"""Everything that changes while a run goes on: model, optimiser, steps taken, and how it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from routelaw.corpus.shards import Corpus
from routelaw.distributed.groups import ALONE, Meshes, Parallel
from routelaw.distributed.tensor_shards import TensorShard, local_shard
from routelaw.model.transformer import Transformer
from routelaw.runs.store import DIVERGED, FINISHED, RUNNING
from routelaw.specs.run import ExecutionSpec, RunSpec
from routelaw.training.checkpoint import (
    COUNTERS,
    MODEL,
    OPTIMIZER,
    CheckpointReader,
    fitting_tensors,
    latest_checkpoint,
    save_checkpoint,
)
from routelaw.training.compiling import compile_blocks
from routelaw.training.optimizer import COUNTER, Optimizer
from routelaw.training.step import StepInfo

MOST_SKIPPED = 20
"""Steps without a finite loss and gradient, in a row, after which a run has diverged."""
OPTIMIZER_STATE_DTYPES = {"float32": None, "bfloat16": torch.bfloat16}
"""Types of AdamW's moments; None is as the masters are."""


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
        execution: ExecutionSpec | None = None,
        compile_mode: str = "off",
        parallel: Parallel = ALONE,
        meshes: Meshes | None = None,
    ) -> TrainState:
        """From a spec to what can be stepped; `compile_mode` as compiling.py resolves it."""
        execution = execution or ExecutionSpec()
        model = Transformer(spec, parallel)
        tell_token_counts(model, corpus)
        if meshes is None or parallel.batch.size == 1:
            masters = {name: parameter.detach() for name, parameter in model.to(device).named_parameters()}
            moments = OPTIMIZER_STATE_DTYPES[execution.optimizer_state_dtype]
            optimizer = Optimizer(model.to(dtype), spec.train, masters=masters, moments=moments)
        else:
            from routelaw.distributed.sharding import shard  # imports FSDP and the compiler, a second of CPU time

            # The masters are sharded, and come to the device as they are: never all of them whole.
            shard(model.to(torch.promote_types(dtype, torch.float32)), meshes, dtype)
            optimizer = Optimizer(model, spec.train)
        model.recompute = execution.recompute
        if compile_mode != "off":
            compile_blocks(model)
        return cls(spec, model, optimizer)

    def resume(self, folder: Path, notice: Callable[[str], None]) -> None:
        """Continue from the newest whole checkpoint in the folder, if there is one, whatever layout wrote it."""
        found = latest_checkpoint(folder, self.spec, notice, read=self._read, parallel=self.model.parallel)
        if found is None:
            return
        reader, model, optimizer = found
        with fitting_tensors(reader.path), torch.no_grad():
            for name, (own, _) in self._held()[MODEL].items():
                own.copy_(model[name])
            self.optimizer.load(optimizer, model)
        self.step = reader.state["step"]
        for name, value in reader.state["counters"].items():  # names are checked by the reader
            setattr(self, name, value)
        notice(f"continuing after step {self.step} from {reader.path}.")

    def _read(self, reader: CheckpointReader) -> tuple[CheckpointReader, dict[str, Tensor], dict[str, Tensor]]:
        """What this process needs of a checkpoint, before anything of it is put into the model."""
        own, stored, state = self._held()[MODEL], reader.index[OPTIMIZER], reader.state
        with fitting_tensors(reader.path):
            if reader.index[MODEL].keys() != own.keys():
                raise ValueError(f"{min(reader.index[MODEL].keys() ^ own.keys())} is only in one of the two")
            # A step that was skipped leaves no state behind, so a run of nothing else has none.
            if not stored and state["step"] > state["counters"].get("skipped", 0):
                raise ValueError("it has steps and no state of the optimizer")
            model = {name: reader.read(MODEL, name, shard) for name, (_, shard) in own.items()}
            optimizer = {}
            for key in stored:
                kind, _, name = key.partition("/")
                shard = None if kind == COUNTER else self._local(name, self.optimizer.masters[name])[1]
                optimizer[key] = reader.read(OPTIMIZER, key, shard)
        return reader, model, optimizer

    def save(self, folder: Path, keep: int) -> None:
        parallel = self.model.parallel
        if not parallel.alone:
            from routelaw.distributed.sharding import reshard

            reshard(self.model)  # an evaluation may have left parameters whole
        counters = {name: getattr(self, name) for name in COUNTERS}
        save_checkpoint(folder, self.spec, self.step, counters, self._held(), keep, parallel)

    def _held(self) -> dict[str, dict[str, tuple[Tensor, TensorShard]]]:
        """Every tensor of the state: what this process holds of it, and where that lies in the whole."""
        return {
            MODEL: {name: self._local(name, tensor) for name, tensor in self.model.state_dict().items()},
            OPTIMIZER: {
                key: self._local("" if key.startswith(COUNTER) else key.partition("/")[2], tensor)
                for key, tensor in self.optimizer.state().items()
            },
        }

    def _local(self, name: str, tensor: Tensor) -> tuple[Tensor, TensorShard]:
        """What is no parameter (a buffer, a counter) every process has whole, and the first saves."""
        shard = self.model.shards.get(name) or TensorShard.whole(tensor.shape, self.model.parallel.rank)
        return local_shard(tensor, shard)

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
