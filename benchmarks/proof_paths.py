"""The fast paths of a training step, each with a way to do without it: plain forms put in place of module attributes.

The plain forms stand apart from the package's own, so that a proof does not compare a thing with itself. Those that a
compiler cannot follow are operations it does not look into.

Shapes: T tokens, N rows, D and F widths, E experts, G routing groups of M members, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import routelaw.model.attention as attention_module
import routelaw.model.experts as experts_module
import routelaw.model.grouped_product as product_module
import routelaw.routers.gating as gating_module
import routelaw.routers.reinforce as reinforce_module
import routelaw.routers.sinkhorn as sinkhorn_module
from routelaw.bench.clock import CUDA, DEVICE, DTYPE
from routelaw.kernels.sinkhorn import sinkhorn
from routelaw.model.relative_attention import biased
from routelaw.model.transformer import Transformer
from routelaw.specs.run import RunSpec
from routelaw.training.compiling import GraphedStep
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import StepResult, take_step

BACKEND = "inductor" if CUDA else "aot_eager"
"""On a CPU only the way is tried, and there the compiler takes a minute."""
RELATIVE = "relative attention in pieces"
"""The path that only positions `xl` take."""
NARROW = "router's product of narrow numbers"
DISPATCH = "dispatch kernels"
FEW_ROWS = "products for few rows"
HOPPER = CUDA and torch.cuda.get_device_capability()[0] == product_module.HOPPER


@dataclass(frozen=True)
class Way:
    """How to train: which of the fast paths are taken."""

    compiled: bool = True
    fused: bool | None = None
    patched: Callable[[], AbstractContextManager[Any]] = nullcontext
    recorded: bool = CUDA
    """Steps as CUDA graphs; not where a plain form asks the device for a value."""
    dtype: torch.dtype = DTYPE
    moments: torch.dtype | None = None
    """Type of AdamW's moments, where they are not float32."""
    recompute: bool = False

    def model(self, spec: RunSpec, seed: int) -> Transformer:
        """The seed is of the start alone: the spec's, which routing draws from, is a constant to the compiler."""
        model = Transformer(spec)
        model.initialise(seed)
        model = model.to(DEVICE, self.dtype)
        for block in model.blocks if self.compiled else ():  # not `compile_blocks`: seeds share what is compiled
            block.compile(fullgraph=True, dynamic=False, backend=BACKEND)
        model.recompute = self.recompute
        return model.train()

    def optimizer(self, model: Transformer) -> Optimizer:
        return Optimizer(model, model.spec.train, fused=self.fused, moments=self.moments)

    def taker(self, model: Transformer, optimizer: Optimizer) -> Callable[[Tensor, int], StepResult]:
        """(tokens, step) -> what came of it; a recorded step's is overwritten by the next."""
        if self.recorded:
            return GraphedStep(model, optimizer, model.spec)
        return lambda tokens_BS, step: take_step(model, optimizer, tokens_BS, model.spec, step)


@contextmanager
def replaced(owner: Any, name: str, plain: Any) -> Iterator[None]:
    fast = getattr(owner, name)
    setattr(owner, name, plain)
    try:
        yield
    finally:
        setattr(owner, name, fast)


@torch.library.custom_op("proof::potentials", mutates_args=())
def plain_potentials(
    logits_TE: Tensor, members_GM: Tensor, valid_T: Tensor, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    return sinkhorn(logits_TE[members_GM], valid_T[members_GM], tolerance, max_iterations)[1:]


@plain_potentials.register_fake
def _(
    logits_TE: Tensor, members_GM: Tensor, valid_T: Tensor, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    g_GE = logits_TE.new_empty(members_GM.shape[0], logits_TE.shape[1])
    return g_GE, g_GE.new_empty(len(g_GE), dtype=torch.int64), g_GE.new_empty(len(g_GE))


def slices(offsets_E: Tensor) -> Iterator[tuple[int, slice]]:
    return ((expert, slice(a, b)) for expert, (a, b) in enumerate(pairwise([0, *offsets_E.tolist()])))


@torch.library.custom_op("proof::product", mutates_args=())
def sliced_product(x_ND: Tensor, weight_EDF: Tensor, offsets_E: Tensor) -> Tensor:
    y_NF = x_ND.new_zeros(x_ND.shape[0], weight_EDF.shape[2])
    for expert, rows in slices(offsets_E):
        y_NF[rows] = x_ND[rows] @ weight_EDF[expert]
    return y_NF


@sliced_product.register_fake
def _(x_ND: Tensor, weight_EDF: Tensor, offsets_E: Tensor) -> Tensor:
    return x_ND.new_empty(x_ND.shape[0], weight_EDF.shape[2])


@torch.library.custom_op("proof::product_gradients", mutates_args=())
def sliced_gradients(gradient_NF: Tensor, x_ND: Tensor, weight_EDF: Tensor, offsets_E: Tensor) -> tuple[Tensor, Tensor]:
    of_x_ND = x_ND.new_zeros(x_ND.shape)
    of_weight_EDF = weight_EDF.new_zeros(weight_EDF.shape)
    for expert, rows in slices(offsets_E):
        of_x_ND[rows] = gradient_NF[rows] @ weight_EDF[expert].T
        of_weight_EDF[expert] = x_ND[rows].T @ gradient_NF[rows]
    return of_x_ND, of_weight_EDF


@sliced_gradients.register_fake
def _(gradient_NF: Tensor, x_ND: Tensor, weight_EDF: Tensor, offsets_E: Tensor) -> tuple[Tensor, Tensor]:
    return x_ND.new_empty(x_ND.shape), weight_EDF.new_empty(weight_EDF.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient_NF: Tensor) -> tuple[Tensor, Tensor, None]:
    return (*sliced_gradients(gradient_NF, *ctx.saved_tensors), None)


sliced_product.register_autograd(_backward, setup_context=_keep)


def plain_nll(model: Transformer, hidden_TD: Tensor, target_T: Tensor) -> Tensor:
    """The negative log-likelihood from all logits at once."""
    logits_TV = hidden_TD @ model.embedding.T
    wide = torch.promote_types(logits_TV.dtype, torch.float32)
    return F.cross_entropy(logits_TV.to(wide), target_T, reduction="none")


def upcast_linear(x_TD: Tensor, weight_ED: Tensor) -> Tensor:
    wide = torch.promote_types(x_TD.dtype, torch.float32)
    return F.linear(x_TD.to(wide), weight_ED.to(wide))


@contextmanager
def widened_routers() -> Iterator[None]:
    with (
        replaced(gating_module, "fp32_linear", upcast_linear),
        replaced(reinforce_module, "fp32_linear", upcast_linear),
    ):
        yield


def plain_order(expert_N: Tensor, kept_N: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    sorted_expert_N = torch.where(kept_N, expert_N, experts)
    order_N = torch.argsort(sorted_expert_N, stable=True)
    number_E = torch.arange(experts, device=sorted_expert_N.device)
    return order_N, torch.argsort(order_N), (sorted_expert_N[:, None] <= number_E).sum(0, dtype=torch.int32)


def plain_rows(x_ND: Tensor, place_N: Tensor, kept_N: Tensor, k: int) -> Tensor:
    return torch.where(kept_N[:, None], x_ND[place_N], 0).view(-1, k, x_ND.shape[1]).sum(1)


@contextmanager
def plain_dispatch() -> Iterator[None]:
    with replaced(experts_module, "expert_order", plain_order), replaced(experts_module, "summed_rows", plain_rows):
        yield


PATCHES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "sinkhorn kernel": lambda: replaced(sinkhorn_module, "expert_potentials", plain_potentials),
    "grouped product": lambda: replaced(experts_module, "grouped_product", sliced_product),
    "loss by pieces": lambda: replaced(Transformer, "token_nll", plain_nll),
    RELATIVE: lambda: replaced(attention_module, "relative_attention", biased),
    NARROW: widened_routers,
    DISPATCH: plain_dispatch,
}
WAITING = ("sinkhorn kernel", "grouped product")
"""Their plain forms read sizes or sums on the host, so a step with them cannot be recorded."""


@contextmanager
def all_patches() -> Iterator[None]:
    with ExitStack() as stack:
        for patch in PATCHES.values():
            stack.enter_context(patch())
        yield


FAST = Way()
EVERY_KERNEL = Way(recorded=False)
PLAIN = Way(compiled=False, fused=False, patched=all_patches, recorded=False)
WIDE = replace(PLAIN, dtype=torch.float32)
"""What all of them are short of: plain, and nothing is rounded to bfloat16."""
WITHOUT: dict[str, Way] = {
    "compiled blocks": Way(compiled=False),
    **{name: Way(patched=patch, recorded=CUDA and name not in WAITING) for name, patch in PATCHES.items()},
    "fused AdamW": Way(fused=False, recorded=False),
    **({"recorded step (CUDA graph)": EVERY_KERNEL} if CUDA else {}),
    "any of them": PLAIN,
}
"""By what is left out; with what waits for the device, the recording too."""
WITH: dict[str, Way] = {
    "bfloat16 moments": Way(fused=True, moments=torch.bfloat16),
    "recomputed blocks": Way(recompute=True),
    **({FEW_ROWS: Way(patched=lambda: replaced(product_module, "FEW", 2**31))} if HOPPER else {}),
}
"""What these models do without, by what is taken up: options that save memory, and what many experts have."""
