"""Memory as torch itself tells it: what autograd keeps, and the most tensors that are alive at one moment."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from routelaw.model.transformer import Transformer
from routelaw.specs.run import RunSpec
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import layer_losses, step_context, weighted_sum


def built(spec: RunSpec, precision: str, device: str = "cpu") -> tuple[Transformer, Optimizer]:
    model = Transformer(spec).to(device=device, dtype=getattr(torch, precision))
    return model, Optimizer(model, spec.train)


def some_tokens(spec: RunSpec, sequences: int, device: str = "cpu") -> Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (sequences, spec.model.sequence_length + 1)
    return torch.randint(spec.model.vocabulary, shape, generator=generator).to(device)


def kept_for_backward(spec: RunSpec, micro_batches: int, precision: str) -> int:
    """Bytes of distinct storages that autograd saves in the forward pass of a micro-batch, parameters left out."""
    model, _ = built(spec, precision)
    tokens_BS = some_tokens(spec, spec.train.batch // micro_batches)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    saved: dict[int, Tensor] = {}  # held, so that no address is used twice

    def save(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            saved.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        output = model(tokens_BS[:, :-1], step_context(spec, 0, tokens_BS[:, :-1], 0))
        nll_T = model.token_nll(output.hidden_TD, tokens_BS[:, 1:].flatten())
        nll_T.mean() + weighted_sum(model, layer_losses(model, output, nll_T.detach()), nll_T)
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


class Alive(TorchDispatchMode):
    """Counts the bytes of storages made by operations, from when they are made until they are freed."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self.bytes = self.most = 0
        self._held = [tensor.untyped_storage() for tensor in known]
        self._sizes = {storage._cdata: 0 for storage in self._held}  # those that were there before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and (key := tensor.untyped_storage()._cdata) not in self._sizes:
                storage = tensor.untyped_storage()
                self._sizes[key] = storage.nbytes()
                self.bytes += storage.nbytes()
                self.most = max(self.most, self.bytes)
                weakref.finalize(storage, self._freed, key)
        return result

    def _freed(self, key: int) -> None:
        self.bytes -= self._sizes.pop(key, 0)
