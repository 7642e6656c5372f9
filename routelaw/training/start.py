"""From a spec to what can be stepped: model and optimiser on their device, compiled as asked."""

from __future__ import annotations

import torch

from routelaw.corpus.shards import Corpus
from routelaw.model.parallel import ALONE, Parallel
from routelaw.specs.run import ExecutionSpec, RunSpec
from routelaw.training.compiling import compile_blocks
from routelaw.training.mesh import Meshes
from routelaw.training.state import TrainState

MOMENTS = {"float32": None, "bfloat16": torch.bfloat16}
"""Types of AdamW's moments; None is as the masters are."""


def started(
    spec: RunSpec,
    execution: ExecutionSpec,
    corpus: Corpus,
    device: torch.device,
    dtype: torch.dtype,
    way: str,
    parallel: Parallel = ALONE,
    meshes: Meshes | None = None,
) -> TrainState:
    """`way` is what compiling.py says of the run."""
    state = TrainState.start(spec, corpus, device, dtype, parallel, meshes, MOMENTS[execution.optimizer_state_dtype])
    state.model.recompute = execution.recompute
    if way != "off":
        compile_blocks(state.model)
    return state
