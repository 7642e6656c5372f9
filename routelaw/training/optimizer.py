"""AdamW whose arithmetic is float32 (or wider) whatever the model computes in.

Where the model holds bfloat16 parameters, gradients are added up in float32 and a float32 master copy is stepped and
written back: a bfloat16 weight of 1 cannot take a step below 4e-3. Matrices decay; LayerNorms and biases do not.

On a GPU whose masters are whole (one process) a step is a handful of launches for all tensors together: gradients
widened, their norm, torch's fused AdamW, which also clips and leaves everything as it is where the step is not finite,
and the masters narrowed. Nothing of it waits for the device. On a CPU, and where masters are sharded, torch's loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from routelaw.model.cuts import is_tensor_split
from routelaw.model.parallel import ALONE
from routelaw.model.transformer import Transformer
from routelaw.specs.run import TrainSpec

EPSILON = 1e-8
MASTER = "master"


class Optimizer:
    def __init__(self, model: nn.Module, train: TrainSpec, fused: bool | None = None) -> None:
        """`fused`: torch's fused kernel, by default where the above says."""
        self.train = train
        self.parallel = model.parallel if isinstance(model, Transformer) else ALONE
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.masters = {name: _master(p) for name, p in self.parameters.items()}
        decayed = [m for name, m in self.masters.items() if decays(name, m)]
        plain = [m for name, m in self.masters.items() if not decays(name, m)]
        groups = [{"params": decayed, "weight_decay": train.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        self.decides = _whole_on_gpu(self.masters.values()) if fused is None else fused
        """Whether `step` is to be told if the step is finite, instead of being left out."""
        self.rate = torch.zeros((), device=next(iter(self.masters.values())).device)
        """Where `decides` holds, the learning rate: a place on the device, so that a step can be recorded."""
        self.adamw = torch.optim.AdamW(
            [g for g in groups if g["params"]],
            lr=self.rate if self.decides else train.learning_rate,
            betas=(train.beta1, train.beta2),
            eps=EPSILON,
            fused=self.decides or None,
            capturable=self.decides,
        )

    def gather(self) -> None:
        """Add the gradients of a micro-batch to the masters'; where they are one and the same, autograd has done it."""
        pairs = [(p, self.masters[name]) for name, p in self.parameters.items() if self.masters[name] is not p]
        pairs = [(p, master) for p, master in pairs if p.grad is not None]
        first = [(p, master) for p, master in pairs if master.grad is None]
        for _, master in first:
            master.grad = torch.empty_like(master)
        if first:
            torch._foreach_copy_([_gradient(master) for _, master in first], [_gradient(p) for p, _ in first])
        known = {id(p) for p, _ in first}
        for parameter, master in pairs:
            if id(parameter) not in known:
                _gradient(master).add_(_gradient(parameter))
            parameter.grad = None

    def gradient_norm(self) -> Tensor:
        """Of all gradients together; a parameter that took no part has a gradient of zero."""
        for master in self.masters.values():
            if master.grad is None:
                master.grad = torch.zeros_like(master)
        if self.parallel.alone:
            return torch.linalg.vector_norm(torch.stack(_norms(list(self.masters.values()))))
        return self._norm_of_parts()

    def _norm_of_parts(self) -> Tensor:
        """Every part counts once: what tensor-parallel processes hold in common is not added up over them."""
        device = next(iter(self.masters.values())).device
        own, common = torch.zeros(2, dtype=torch.float64, device=device)
        for name, master in self.masters.items():
            square = _norm(master).double() ** 2
            if is_tensor_split(name):
                own += square
            else:
                common += square
        return self.parallel.batch.all_sum(self.parallel.tensor.all_sum(own) + common).sqrt()

    def step(self, rate: float | Tensor, norm: Tensor, finite: Tensor | None = None) -> None:
        """Clip to the norm given by the spec, step, and write the masters back; where it is not finite, nothing."""
        if self.decides:
            self._fused_step(rate, norm, finite)
            return
        scale = torch.clamp(self.train.clip / (norm + 1e-12), max=1.0)
        for master in self.masters.values():
            gradient = local_part(_gradient(master))
            gradient.mul_(scale.to(gradient.dtype))
        for group in self.adamw.param_groups:
            group["lr"] = rate
        self.adamw.step()
        self._write_back()

    def _fused_step(self, rate: float | Tensor, norm: Tensor, finite: Tensor | None) -> None:
        """`grad_scale` divides the gradients and `found_inf` withholds the update, both read on the device."""
        self.adamw.grad_scale = torch.clamp((norm + 1e-12) / self.train.clip, min=1.0)  # pyrefly: ignore
        self.adamw.found_inf = None if finite is None else (~finite).to(torch.float32)  # pyrefly: ignore
        if rate is not self.rate:
            self.rate.fill_(rate)
        self.adamw.step()
        self._write_back()

    def clear(self) -> None:
        for name, parameter in self.parameters.items():
            parameter.grad = None
            self.masters[name].grad = None

    def state(self) -> dict[str, Tensor]:
        """Everything to continue from, by name: moments, and masters where they are not the parameters."""
        tensors: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            for key, value in self.adamw.state.get(master, {}).items():
                tensors[f"{key}/{name}"] = value
            if master is not self.parameters[name]:
                tensors[f"{MASTER}/{name}"] = master.detach()
        return tensors

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> None:
        """Continue from a state and the model saved with it, whichever precision they were saved in: the widest copy
        of a parameter is the one that counts."""
        for name, master in self.masters.items():
            master.copy_(tensors.get(f"{MASTER}/{name}", model[name]))
        self._write_back()
        for key, value in tensors.items():
            kind, name = key.split("/", 1)
            if kind == "step":  # Adam's counter is a float32 scalar that lives on the CPU, or with what decides
                where = self.masters[name].device if self.decides else "cpu"
                self.adamw.state[self.masters[name]][kind] = value.to(where)
            elif kind != MASTER:
                self.adamw.state[self.masters[name]][kind] = value.to(self.masters[name])

    @torch.no_grad()
    def _write_back(self) -> None:
        pairs = [(p, self.masters[name]) for name, p in self.parameters.items() if self.masters[name] is not p]
        if pairs:
            torch._foreach_copy_([p for p, _ in pairs], [master for _, master in pairs])


def decays(name: str, parameter: Tensor) -> bool:
    """By name too: the LayerNorms inside the experts are matrices, one row per expert."""
    return parameter.ndim >= 2 and "norm" not in name


def _whole_on_gpu(masters: Iterable[Tensor]) -> bool:
    return all(m.is_cuda and m.dtype == torch.float32 and not isinstance(m, DTensor) for m in masters)


def _master(parameter: nn.Parameter) -> Tensor:
    if parameter.dtype in (torch.float32, torch.float64):
        return parameter
    return parameter.detach().to(torch.float32).clone().requires_grad_(True)


def _gradient(master: Tensor) -> Tensor:
    assert master.grad is not None
    return master.grad


def _norms(masters: list[Tensor]) -> list[Tensor]:
    """One launch for many tensors on a GPU; on a CPU the same sums as ever."""
    if masters[0].is_cuda:
        return list(torch._foreach_norm([local_part(_gradient(m)) for m in masters]))
    return [_norm(m) for m in masters]


def _norm(master: Tensor) -> Tensor:
    return torch.linalg.vector_norm(local_part(_gradient(master)))


def local_part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor that may be sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
