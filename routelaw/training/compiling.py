"""When a run's blocks are compiled and its steps are CUDA graphs.

`blocks` has torch compile every block, in two graphs whatever the depth (routed, and not). `step` also records a whole
step, optimiser included, as one CUDA graph: small models are bound by launching kernels, not by running them.
`auto` takes the best there is: nothing on a CPU, where compiling takes longer than a small run, nor for a router that
needs the host, nor for several processes; on a GPU `step` for short steps and `blocks` for long ones, since a graph
keeps its memory.

Evaluation is not compiled: its batches are others, and it is a small part of a run.
"""

from __future__ import annotations

import torch

from routelaw.errors import InputError
from routelaw.model.transformer import Transformer
from routelaw.routers.router import router_class
from routelaw.specs.run import ExecutionSpec, RunSpec

WAYS = ("auto", "off", "blocks", "step")
SHORT_STEP = 2e13
"""FLOPs: about 50 ms of an H200, of which launching every kernel by itself would take a tenth."""


def way_to_compile(spec: RunSpec, execution: ExecutionSpec, device: torch.device) -> str:
    """off, blocks or step; what cannot be is an error where it was asked for."""
    asked = execution.compile
    if asked not in WAYS:
        raise InputError(f"execution.compile is one of {', '.join(WAYS)}, not {asked!r}.")
    if asked == "off":
        return asked
    obstacle = _obstacle(spec, execution)
    if asked == "auto":
        if obstacle or device.type != "cuda":
            return "off"
        tokens = spec.train.batch * spec.model.sequence_length
        return "step" if 3 * spec.counts.flops_per_token * tokens < SHORT_STEP else "blocks"
    if obstacle:
        raise InputError(f'{obstacle}: leave execution.compile at "auto" or "off".')
    if asked == "step" and device.type != "cuda":
        raise InputError('execution.compile = "step" records CUDA graphs and needs a GPU: take "blocks" or "off".')
    return asked


def _obstacle(spec: RunSpec, execution: ExecutionSpec) -> str:
    if execution.layout.world > 1:
        return "runs of several processes are not compiled"
    if spec.routed_blocks and not router_class(spec.router.name).stays_on_device:
        return f"router {spec.router.name!r} asks the host while it decides, and cannot be compiled"
    return ""


def compile_blocks(model: Transformer) -> None:
    torch._dynamo.reset()  # what an earlier run in this process compiled counts against a limit
    for block in model.blocks:
        block.compile(fullgraph=True, dynamic=False)
