"""A whole training step as one CUDA graph: replayed, it costs the host one launch.

Nothing in a step asks the device for a value, tokens and step number are read from fixed places, and the learning rate
is a tensor, so the recorded work is right for every later step. The first steps are taken one kernel at a time: they
compile, choose algorithms and make the optimiser's statistics. What a replay leaves behind is overwritten by the next:
read it before.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from routelaw.model.transformer import Transformer
from routelaw.specs.run import RunSpec
from routelaw.training.optimizer import Optimizer
from routelaw.training.schedule import learning_rate
from routelaw.training.step import Outcome, step_on_device

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

    def __call__(self, tokens_BS: Tensor, step: int) -> Outcome:
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
        return replace(outcome, step=step + 1, learning_rate=rate, finite=outcome.finite.clone())

    def _once(self) -> Outcome:
        """Beside the stream on which graphs cannot be recorded."""
        self.aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.aside):
            outcome = self._step()
        torch.cuda.current_stream().wait_stream(self.aside)
        return outcome

    def _step(self) -> Outcome:
        return step_on_device(
            self.model, self.optimizer, self.tokens_BS, self.spec, self.number, self.optimizer.rate, self.micro_batches
        )
