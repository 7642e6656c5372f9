"""ZeRO by FSDP2: masters and optimiser statistics are spread over the processes that hold the same parameters, data ×
expert (experts: data). What tensor-parallel processes hold in common stays with each.

Parameters are whole while they compute (nothing is given back after the forward pass) and gathered once a micro-batch.
Reductions are sums, since losses are already divided by the count of all processes.
"""

from __future__ import annotations

import warnings

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

from routelaw.costs.parameters import shard_dimension
from routelaw.distributed.groups import Meshes
from routelaw.model.transformer import Transformer


def shard(model: Transformer, meshes: Meshes, dtype: torch.dtype) -> None:
    """Experts over those that have the same ones, all else over data × expert. float32 masters where dtype is less."""
    # A router's weights may be a view; nothing here, nor in what a router may do with them, works in place.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    policy = MixedPrecisionPolicy()
    if dtype == torch.bfloat16:
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for block in model.blocks:
        if block.routed:  # pyrefly: ignore
            _shard(block.experts, meshes.data, policy)  # pyrefly: ignore
    _shard(model, meshes.batch, policy)
    for module in _sharded(model):
        # FSDP2 would average gradients over processes. Losses are divided by the count of the whole batch already, and
        # NCCL's averaging reduction is then replaced by a plain sum, too.
        module.set_force_sum_reduction_for_comms(True)
        module.set_gradient_divide_factor(1.0)


def _shard(module: nn.Module, mesh: DeviceMesh, policy: MixedPrecisionPolicy) -> None:
    def place(parameter: nn.Parameter) -> Shard:
        return Shard(shard_dimension(tuple(parameter.shape), mesh.size()))

    # Not resharded after the forward pass: a block's parameters would be gathered a second time for the backward pass.
    fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=False, shard_placement_fn=place)


def reshard(model: Transformer) -> None:
    """A forward pass without a backward pass, an evaluation's, leaves parameters whole; this gives them back."""
    for module in _sharded(model):
        module.reshard()


def _sharded(model: Transformer) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]
