"""AdamW whose arithmetic is float32 (or wider) whatever the model computes in.

Where the model holds bfloat16 parameters, gradients are added up in float32 and a float32 master copy is stepped and
written back: a bfloat16 weight of 1 cannot take a step below 4e-3. Matrices decay; LayerNorms and biases do not.

On a GPU whose masters are whole (one process) a tensor is updated in one pass (fused_adamw.py), which also clips and
leaves everything as it is where the step is not finite: nothing waits for the device. The gradients of a single
micro-batch are never converted to float32. On a CPU, and where masters are sharded, torch's fused AdamW updates all
tensors in one call. It is called as an operation: `torch.optim` would import torch's compiler, which takes longer than
torch itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from routelaw.distributed.groups import ALONE
from routelaw.distributed.tensor_shards import local_part, tensor_dimension
from routelaw.model.transformer import Transformer
from routelaw.specs.run import TrainSpec
from routelaw.training import fused_adamw
from routelaw.training.fused_adamw import EPSILON

MASTER, COUNTER, MOMENTS = "master", "step", ("exp_avg", "exp_avg_sq")


class Optimizer:
    def __init__(
        self,
        model: nn.Module,
        train: TrainSpec,
        *,
        fused: bool | None = None,
        masters: Mapping[str, Tensor] | None = None,
        moments: torch.dtype | None = None,
    ) -> None:
        """`fused`: one pass per tensor, by default where the above says. `masters`: the parameters before they were
        rounded to what they compute in. `moments`: the type of the moments, where it is not the masters'."""
        self.train = train
        self.parallel = model.parallel if isinstance(model, Transformer) else ALONE
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.masters = {name: _master(p, (masters or {}).get(name)) for name, p in self.parameters.items()}
        self.statistics: dict[str, dict[str, Tensor]] = {}
        """By parameter: its moments and the number of steps it took, from the first step on."""
        device = next(iter(self.masters.values())).device
        alone_on_gpu = self.parallel.alone and _whole_on_gpu(self.masters.values())
        self.skips_on_device = alone_on_gpu if fused is None else fused
        """Whether `step` is to be told if the step is finite, instead of being left out."""
        self.moments = moments
        self.rate, self.taken = torch.zeros(2, device=device)
        """Where `skips_on_device` holds: places on the device, so that a step can be recorded."""
        self.decay = {False: torch.zeros((), device=device), True: torch.full((), train.weight_decay, device=device)}
        self.gradients: dict[str, Tensor] = {}
        """Where `skips_on_device` holds: of the micro-batches so far; of a single one as it came."""

    def accumulate_gradients(self) -> None:
        """Add the gradients of a micro-batch to the masters'; where they are one and the same, autograd has done it."""
        for name, parameter in self.parameters.items():
            master, gradient = self.masters[name], parameter.grad
            if gradient is None or master is parameter:
                continue
            parameter.grad = None
            if self.skips_on_device:
                before = self.gradients.get(name)
                self.gradients[name] = gradient if before is None else before.to(master.dtype).add_(gradient)
            else:
                gradient = gradient.to(master.dtype)
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)

    def gradient_norm(self) -> Tensor:
        """The norm of all gradients together; a parameter that took no part has a gradient of zero."""
        if self.skips_on_device:
            there = [*self.gradients.values(), *(m.grad for m in self.masters.values() if m.grad is not None)]
            return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(there, 2, torch.float32)))
        for master in self.masters.values():
            if master.grad is None:
                master.grad = torch.zeros_like(master)
        if self.parallel.alone:
            return torch.linalg.vector_norm(torch.stack([_norm(m) for m in self.masters.values()]))
        return self._norm_of_parts()

    def _norm_of_parts(self) -> Tensor:
        """Every part counts once: what tensor-parallel processes hold in common is not added up over them."""
        device = next(iter(self.masters.values())).device
        # float64, so that the order in which a layout adds them up does not show.
        own, common = torch.zeros(2, dtype=torch.float64, device=device)
        for name, master in self.masters.items():
            square = _norm(master).double() ** 2
            if tensor_dimension(name) is None:
                common += square
            else:
                own += square
        return self.parallel.batch.all_sum(self.parallel.tensor.all_sum(own) + common).sqrt()

    def step(self, rate: float | Tensor, norm: Tensor, finite: Tensor | None = None) -> None:
        """Clip to the norm given by the spec, step, and write the masters back; where it is not finite, nothing."""
        if self.skips_on_device:
            self._fused_step(rate, norm, finite)
            return
        # A divisor, since that is what the fused operation takes; never below 1, so small gradients stay as they are.
        divisor = torch.clamp((norm + 1e-12) / self.train.clip, min=1.0)
        self._torch_step(rate, divisor)
        self._write_back()

    @torch.no_grad()
    def _torch_step(self, rate: float | Tensor, divisor: Tensor) -> None:
        """Divide the gradients by what clips them, and update every parameter, by torch's fused AdamW."""
        names = list(self.masters)
        gradients = {name: local_part(_gradient(self.masters[name])) for name in names}
        if gradients[names[0]].dtype == torch.float64:  # the fused operation knows a divisor in float32 alone
            torch._foreach_div_(list(gradients.values()), divisor)
            divisor = torch.ones_like(divisor)
        divisor = divisor.to(torch.float32)
        clips = divisor.is_cuda or bool(divisor > 1)  # dividing by 1 would write every gradient again
        known = {name: self._statistics(name) for name in names}
        torch._foreach_add_([known[name][COUNTER] for name in names], 1)
        for decaying in (True, False):
            some = [name for name in names if decays(name, self.masters[name]) == decaying]
            if not some:
                continue
            torch._fused_adamw_(  # pyrefly: ignore
                [local_part(self.masters[name]) for name in some],
                [gradients[name] for name in some],
                *([local_part(known[name][moment]) for name in some] for moment in MOMENTS),
                [],
                [known[name][COUNTER] for name in some],
                lr=rate,
                beta1=self.train.beta1,
                beta2=self.train.beta2,
                weight_decay=self.train.weight_decay if decaying else 0.0,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
                grad_scale=divisor if clips else None,
            )

    @torch.no_grad()
    def _fused_step(self, rate: float | Tensor, norm: Tensor, finite: Tensor | None) -> None:
        if rate is not self.rate:
            self.rate.fill_(rate)
        finite = torch.ones_like(norm, dtype=torch.bool) if finite is None else finite
        scale = torch.clamp(self.train.clip / (norm + 1e-12), max=1.0).to(torch.float32)
        counters = [self._statistics(name)[COUNTER] for name in self.masters]
        torch._foreach_add_(
            counters, [finite.to(torch.float32)] * len(counters)
        )  # of one tensor it would ask its value
        taken = self.taken.copy_(torch.clamp(counters[0], min=1.0))
        scalars = fused_adamw.UpdateScalars.of(self.rate, scale, finite, taken, self.train.beta1, self.train.beta2)
        for name, master in self.masters.items():
            parameter, known = self.parameters[name], self.statistics[name]
            gradient = self.gradients.get(name, master.grad)
            if gradient is None:
                gradient = torch.zeros_like(parameter)
            mean, square = (known[kind] for kind in MOMENTS)
            state = fused_adamw.ParameterState(
                master, gradient, mean, square, None if parameter is master else parameter
            )
            fused_adamw.apply(state, scalars, self.decay[decays(name, master)], self.train.beta1, self.train.beta2)

    def _statistics(self, name: str) -> dict[str, Tensor]:
        known, master = self.statistics.setdefault(name, {}), self.masters[name]
        if not known:
            known[COUNTER] = torch.zeros((), dtype=torch.float32, device=master.device)
            known |= {kind: torch.zeros_like(master, dtype=self.moments or master.dtype) for kind in MOMENTS}
        return known

    def clear(self) -> None:
        for name, parameter in self.parameters.items():
            parameter.grad = None
            self.masters[name].grad = None
        self.gradients = {}

    def state(self) -> dict[str, Tensor]:
        """Everything to continue from, by name: moments, and masters where they are not the parameters."""
        tensors: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            for key, value in self.statistics.get(name, {}).items():
                tensors[f"{key}/{name}"] = value
            if master is not self.parameters[name]:
                tensors[f"{MASTER}/{name}"] = master.detach()
        return tensors

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> None:
        """Continue from a state and the model saved with it (of each tensor the part that is held here), whichever
        precision they were saved in: the most precise copy of a parameter is the one that counts."""
        self._check_state(tensors)
        for name, master in self.masters.items():
            local_part(master).copy_(tensors.get(f"{MASTER}/{name}", model[name]))
        self._write_back()
        for key, value in tensors.items():
            kind, name = key.split("/", 1)
            if kind != MASTER:  # copied, so that the type is this run's, whichever the state was saved in
                local_part(self._statistics(name)[kind]).copy_(value)

    def _check_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise ValueError unless these are tensors that this optimizer could have."""
        for name in self.masters:
            if sum(f"{kind}/{name}" in tensors for kind in (COUNTER, *MOMENTS)) not in (0, 1 + len(MOMENTS)):
                raise ValueError(f"the optimizer's state of {name} is not complete")
        for key, value in tensors.items():
            kind, _, name = key.partition("/")
            if name not in self.masters:
                raise ValueError(f"the optimizer has no parameter {key!r}")
            shape = torch.Size() if kind == COUNTER else local_part(self.masters[name]).shape
            if value.shape != shape or not value.is_floating_point() or (kind == COUNTER and float(value) < 0):
                raise ValueError(f"the optimizer's {key} is not of this model")

    @torch.no_grad()
    def _write_back(self) -> None:
        pairs = [(p, self.masters[name]) for name, p in self.parameters.items() if self.masters[name] is not p]
        if pairs:
            torch._foreach_copy_([p for p, _ in pairs], [master for _, master in pairs])


def decays(name: str, parameter: Tensor) -> bool:
    """By name too: the LayerNorms inside the experts are matrices, one row per expert."""
    return parameter.ndim >= 2 and "norm" not in name


def _whole_on_gpu(masters: Iterable[Tensor]) -> bool:
    return all(m.is_cuda and m.dtype == torch.float32 and local_part(m) is m for m in masters)


def _master(parameter: nn.Parameter, unrounded: Tensor | None) -> Tensor:
    if parameter.dtype in (torch.float32, torch.float64):
        return parameter
    fp32 = parameter.detach().to(torch.float32).clone() if unrounded is None else unrounded.detach()
    return fp32.requires_grad_(True)


def _gradient(master: Tensor) -> Tensor:
    assert master.grad is not None
    return master.grad


def _norm(master: Tensor) -> Tensor:
    return torch.linalg.vector_norm(local_part(_gradient(master)))


def warmup_steps(train: TrainSpec) -> int:
    """As asked, but at most a tenth of the run: a short run still reaches the peak."""
    return min(train.warmup_steps, max(train.steps // 10, 1))


def learning_rate(train: TrainSpec, step: int) -> float:
    """The rate of step 0 … steps−1: linear warm-up, then a cosine down to a share of the peak at the last step."""
    warmup = warmup_steps(train)
    if step < warmup:
        return train.start_rate + (train.learning_rate - train.start_rate) * step / warmup
    done = (step - warmup) / max(train.steps - 1 - warmup, 1)  # 1 at the last step, which is number steps − 1
    final = train.final_share * train.learning_rate
    return final + (train.learning_rate - final) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
