"""What is logged of every routed layer, always: load, entropy, drops, over-subscription, losses, the router's figures.

Figures are added up over micro-batches on the device and fetched once a step. They are sums over tokens, assignments
and groups, so they do not depend on how a batch was split.

Shapes: T tokens, N assignments, G groups, E experts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from routelaw.distributed.groups import SINGLE, Group
from routelaw.model.transformer import Output, RoutedLayer


@dataclass(frozen=True)
class LayerLog:
    block: int
    load: list[float]
    """Share of the assignments that each expert was chosen for, before drops."""
    load_entropy: float
    """Entropy of the load over experts, as a share of log E: 1 when even."""
    dropped: float
    """Share of assignments dropped for lack of capacity."""
    oversubscribed: float
    """Share of assignments beyond an even load of their routing group: Σ_g Σ_e max(0, n_ge − n_g/E) / n."""
    losses: dict[str, float]
    """The router's losses, unweighted, with what it reports among them (rl-r: reward, baseline error)."""
    metrics: dict[str, float]
    """What the router measured: entropy of its policy, Sinkhorn's iterations and violation."""


class RoutingTally:
    """One step's figures of every routed layer, still on the device."""

    def __init__(self, experts: int, batch: Group = SINGLE) -> None:
        self.experts, self.batch, self.pieces = experts, batch, 0
        self._sums: dict[int, dict[str, Tensor]] = {}

    def add(self, output: Output, losses: Mapping[int, Mapping[str, Tensor]]) -> None:
        """A micro-batch; all are of equal size. Losses are this process's share of them."""
        self.pieces += 1
        for layer in output.layers:
            figures = {"count": self._counts(layer), "kept": layer.kept_N.sum()}
            figures |= {f"loss/{name}": value for name, value in losses.get(layer.block, {}).items()}
            figures |= {f"metric/{name}": v / self.batch.size for name, v in layer.routing.metrics.items()}
            sums = self._sums.setdefault(layer.block, {})
            for name, value in figures.items():
                value = value.detach().double()
                # Counts of groups are kept group by group: over-subscription is theirs.
                known = sums.get(name)
                sums[name] = value if known is None else torch.cat([known, value]) if name == "count" else known + value

    def _counts(self, layer: RoutedLayer) -> Tensor:
        """count_GE of the assignments, by routing group."""
        groups = layer.ctx.groups
        cell_N = layer.ctx.group_T[layer.routing.token_N] * self.experts + layer.routing.expert_N
        count = torch.zeros(groups * self.experts, dtype=torch.int64, device=cell_N.device)  # bincount asks the device
        return count.scatter_add(0, cell_N, torch.ones_like(cell_N)).view(groups, self.experts)

    def read(self) -> list[LayerLog]:
        flat = [t.reshape(-1) for block in self._sums.values() for t in self._reduced(block).values()]
        values = iter(self.batch.all_sum(torch.cat(flat)).tolist() if flat else [])
        return [self._log(block, sums, values) for block, sums in self._sums.items()]

    def _reduced(self, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        count_GE = sums["count"]
        even_G1 = count_GE.sum(1, keepdim=True) / self.experts
        rest = {name: value for name, value in sums.items() if name != "count"}
        return {"load": count_GE.sum(0), "excess": (count_GE - even_G1).clamp(min=0).sum(), **rest}

    def _log(self, block: int, sums: Mapping[str, Tensor], values: Iterator[float]) -> LayerLog:
        load = [next(values) for _ in range(self.experts)]
        total = sum(load)
        excess = next(values)
        rest = {name: next(values) for name in sums if name != "count"}
        shares = [taken / total for taken in load]
        entropy = -sum(s * math.log(s) for s in shares if s)

        def averaged(prefix: str) -> dict[str, float]:
            named = {name.removeprefix(prefix): value for name, value in rest.items() if name.startswith(prefix)}
            return {name: value / self.pieces for name, value in named.items()}

        return LayerLog(
            block=block,
            load=shares,
            load_entropy=entropy / math.log(self.experts) if self.experts > 1 else 1.0,
            dropped=1 - rest["kept"] / total,
            oversubscribed=excess / total,
            losses=averaged("loss/"),
            metrics=averaged("metric/"),
        )
