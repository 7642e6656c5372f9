"""When a run's blocks are compiled and its steps are CUDA graphs.

`blocks` has torch compile every block, in two graphs whatever the depth (routed, and not). `step` also records a whole
step, optimiser included, as one CUDA graph: small models are bound by launching kernels, not by running them.
`auto` takes the best there is: nothing on a CPU, where compiling takes longer than a small run, nor for a router that
needs the host, nor for several processes; on a GPU `step` for short steps and `blocks` for long ones, since a graph
keeps its memory.

Evaluation is not compiled: its batches are others, and it is a small part of a run.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

import routelaw.model as model_package
from routelaw import distributed, kernels, routers
from routelaw.costs.memory import may_be_recorded
from routelaw.errors import InputError
from routelaw.model.transformer import Transformer
from routelaw.routers.router import router_class
from routelaw.specs.run import ExecutionSpec, RunSpec
from routelaw.training.optimizer import Optimizer, learning_rate
from routelaw.training.step import StepResult, step_on_device

COMPILE_MODES = ("auto", "off", "blocks", "step")


def resolve_compile_mode(spec: RunSpec, execution: ExecutionSpec, device: torch.device, dtype: torch.dtype) -> str:
    """off, blocks or step; what cannot be is an error where it was asked for."""
    asked, obstacle = execution.compile, obstacle_to_compiling(spec, execution)
    if asked == "off" or (asked == "auto" and (obstacle or device.type != "cuda")):
        return "off"
    if obstacle:
        raise InputError(f'{obstacle}: leave execution.compile at "auto" or "off".')
    recordable = device.type == "cuda" and dtype == torch.bfloat16  # others ask the host in products or in the update
    if asked == "auto":
        short = may_be_recorded(spec, execution, str(dtype).removeprefix("torch."))
        return "step" if recordable and short else "blocks"
    if asked == "step" and not recordable:
        raise InputError('execution.compile = "step" needs a GPU and bfloat16: take "blocks" or "off".')
    return asked


def obstacle_to_compiling(spec: RunSpec, execution: ExecutionSpec) -> str:
    """A phrase, or nothing."""
    if execution.processes.world > 1:
        return "runs of several processes are not compiled"
    if spec.routed_blocks and not router_class(spec.router.name).sync_free:
        return f"router {spec.router.name!r} asks the host while it decides, and cannot be compiled"
    return ""


@cache
def our_code() -> str:
    """A hash of everything that a compiled block is made of."""
    found = hashlib.sha256()
    for package in (kernels, model_package, routers, distributed):
        for path in sorted(Path(package.__path__[0]).glob("*.py")):
            found.update(path.name.encode() + path.read_bytes())
    return f"routelaw {found.hexdigest()}"


def compile_blocks(model: Transformer) -> None:
    import torch._functorch.config as functorch_config  # here: runs that compile nothing begin without the compiler
    import torch.compiler.config

    torch._dynamo.reset()  # what an earlier run in this process compiled counts against a limit
    # What was compiled is kept for the next process, graphs with gradients of our own too, as long as our code is the
    # same: of an operation's registered gradient torch's key knows nothing.
    functorch_config.autograd_cache_allow_custom_autograd_functions = True
    torch.compiler.config.cache_key_tag = our_code()
    for block in model.blocks:
        block.compile(fullgraph=True, dynamic=False)


def uncompiled(model: Transformer) -> AbstractContextManager:
    """A context in which blocks run eager, compiled or not: evaluation's batches have other shapes."""
    compiled = any(block._compiled_call_impl is not None for block in model.blocks)
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


WARM_UP = 3
"""Steps before the recording; torch's own advice."""


class GraphedStep:
    def __init__(self, model: Transformer, optimizer: Optimizer, spec: RunSpec, micro_batches: int = 1) -> None:
        self.model, self.optimizer, self.spec, self.micro_batches = model, optimizer, spec, micro_batches
        self.taken = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.aside = torch.cuda.Stream()
        device = next(model.parameters()).device
        shape = (spec.train.batch, spec.model.sequence_length + 1)
        self.tokens_BS = torch.zeros(shape, dtype=torch.int64, device=device)
        self.number = torch.zeros((), dtype=torch.int64, device=device)

    def __call__(self, tokens_BS: Tensor, step: int) -> StepResult:
        # A graph reads the addresses it was recorded with, so whatever changes is copied to where it looks.
        self.tokens_BS.copy_(tokens_BS, non_blocking=True)
        self.number.fill_(step)
        rate = learning_rate(self.spec.train, step)
        self.optimizer.rate.fill_(rate)
        if self.taken < WARM_UP:
            outcome = self._once()
        else:
            if self.graph is None:
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                    self.recorded = self._step()
            self.graph.replay()
            outcome = self.recorded
        self.taken += 1
        # `finite` may be read many steps later; the rest is read before the next replay, or never.
        return replace(outcome, step=step + 1, learning_rate=rate, finite=outcome.finite.clone())

    def _once(self) -> StepResult:
        """Beside the stream on which graphs cannot be recorded."""
        self.aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.aside):
            outcome = self._step()
        torch.cuda.current_stream().wait_stream(self.aside)
        return outcome

    def _step(self) -> StepResult:
        return step_on_device(
            self.model, self.optimizer, self.tokens_BS, self.spec, self.number, self.optimizer.rate, self.micro_batches
        )
