"""Against torch's own AdamW, clipping included; in bfloat16 against float32."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from routelaw.distributed.groups import Group, Parallel
from routelaw.model.transformer import Transformer
from routelaw.specs.counting import Architecture
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.training.fused_adamw import EPSILON, rounded_at_random
from routelaw.training.optimizer import Optimizer, decays

TRAIN = TrainSpec(steps=100, learning_rate=1e-2, weight_decay=0.1, clip=0.5)


class Small(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(5, 3, generator=generator).to(dtype))
        self.norm_scale = nn.Parameter(torch.ones(2, 3, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(3, dtype=dtype))
        self.unused = nn.Parameter(torch.ones(2, 2, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return ((x @ self.weight) * self.norm_scale.sum(0) + self.bias).square().mean()


def batches(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 5, generator=generator) for _ in range(count)]


def steps(model: Small, count: int, rate: float = 1e-2) -> Optimizer:
    optimizer = Optimizer(model, TRAIN)
    dtype = model.weight.dtype
    for x in batches(count):
        optimizer.clear()
        model(x.to(dtype)).backward()
        optimizer.accumulate_gradients()
        optimizer.step(rate, optimizer.gradient_norm())
    return optimizer


def test_equals_torch_in_float32() -> None:
    ours, theirs = Small(), Small()
    steps(ours, 12)
    groups = [
        {"params": [theirs.weight, theirs.unused], "weight_decay": TRAIN.weight_decay},
        {"params": [theirs.norm_scale, theirs.bias], "weight_decay": 0.0},
    ]
    reference = torch.optim.AdamW(groups, lr=1e-2, betas=(TRAIN.beta1, TRAIN.beta2), eps=EPSILON)
    for x in batches(12):
        reference.zero_grad()
        theirs(x).backward()
        theirs.unused.grad = torch.zeros_like(theirs.unused)
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), TRAIN.clip)
        assert norm > TRAIN.clip, "the test should clip"
        reference.step()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-6, atol=1e-7, msg=name)


@pytest.mark.parametrize("clip", [0.1, 1e3])
def test_clipping_equals_torch(clip: float) -> None:
    """By the gradients themselves: Adam hardly notices their scale."""
    ours, theirs = Small(), Small()
    optimizer = Optimizer(ours, replace(TRAIN, clip=clip))
    for model in (ours, theirs):
        model(batches(1)[0]).backward()
    optimizer.step(0.0, optimizer.gradient_norm())
    nn.utils.clip_grad_norm_(theirs.parameters(), clip)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_fused_step_is_the_plain_one_and_can_be_withheld(dtype: torch.dtype) -> None:
    """Clipping included; where the step is not finite, nothing moves: no parameter, no moment, no counter."""
    models = [Small(dtype), Small(dtype)]
    plain, fused = (Optimizer(m, TRAIN, fused=f) for m, f in zip(models, (False, True), strict=True))
    yes, no = torch.tensor(True), torch.tensor(False)
    for number, x in enumerate(batches(6)):
        for model, optimizer in zip(models, (plain, fused), strict=True):
            optimizer.clear()
            model(x.to(dtype)).backward()
            optimizer.accumulate_gradients()
            norm = optimizer.gradient_norm()
            assert norm > TRAIN.clip, "the test should clip"
            if optimizer is plain:
                optimizer.step(1e-2, norm)
                continue
            before = {name: value.clone() for name, value in optimizer.state().items()}
            if number == 3:
                optimizer.step(1e-2, norm * torch.nan, no)
                assert all(torch.equal(before[name], value) for name, value in optimizer.state().items())
                optimizer.clear()
                model(x.to(dtype)).backward()
                optimizer.accumulate_gradients()
                norm = optimizer.gradient_norm()
            optimizer.step(1e-2, norm, yes)
    for name, value in plain.state().items():
        torch.testing.assert_close(fused.state()[name], value, rtol=1e-5, atol=1e-7, msg=name)
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-6)


def test_layernorms_and_biases_do_not_decay() -> None:
    """Also those inside the experts, which are matrices: one row per expert."""
    matrix, vector = torch.ones(2, 2), torch.ones(2)
    assert decays("blocks.0.experts.up.0", matrix)
    assert decays("embedding", matrix)
    assert not decays("blocks.0.experts.norm_scale.0", matrix)
    assert not decays("blocks.0.ffw_norm.weight", vector)
    assert not decays("blocks.0.router.bias", vector)


def test_bfloat16_keeps_a_float32_master() -> None:
    """Steps too small for bfloat16 add up in the master; a bfloat16 AdamW without one stands still."""
    rate, count = 1e-4, 20
    full, half, naive = Small(), Small(torch.bfloat16), Small(torch.bfloat16)
    steps(full, count, rate)
    optimizer = steps(half, count, rate)
    reference = torch.optim.AdamW(naive.parameters(), lr=rate, betas=(TRAIN.beta1, TRAIN.beta2), weight_decay=0.0)
    for x in batches(count):
        reference.zero_grad()
        naive(x.bfloat16()).backward()
        reference.step()
    master = optimizer.masters["norm_scale"]
    assert master.dtype == torch.float32
    assert half.norm_scale.dtype == torch.bfloat16
    assert torch.equal(half.norm_scale, master.bfloat16())
    moved, wanted = (master - 1).abs().mean(), (full.norm_scale - 1).abs().mean()
    assert 0.8 < moved / wanted < 1.2
    assert torch.equal(naive.norm_scale, torch.ones_like(naive.norm_scale)), "a bfloat16 1 cannot take this step"


def test_micro_batches_add_up_in_float32() -> None:
    """256 + 1 is 256 in bfloat16: small gradients after a large one must not be lost."""
    model = Small(torch.bfloat16)
    optimizer = Optimizer(model, TRAIN)
    for value in (256.0, 1.0, 1.0, 1.0):
        model.bias.grad = torch.full_like(model.bias, value)
        optimizer.accumulate_gradients()
    assert optimizer.masters["bias"].grad.tolist() == [259.0] * 3


def test_state_survives_a_change_of_precision() -> None:
    """A run may be resumed in another precision: the widest copy of a parameter is what continues."""
    half = Small(torch.bfloat16)
    optimizer = steps(half, 3)
    full = Small()
    resumed = Optimizer(full, TRAIN)
    resumed.load(optimizer.state(), half.state_dict())
    for name, master in optimizer.masters.items():
        assert torch.equal(dict(full.named_parameters())[name], master)
        assert torch.equal(resumed.statistics[name]["exp_avg"], optimizer.statistics[name]["exp_avg"])
    again = Small(torch.bfloat16)
    back = Optimizer(again, TRAIN)
    back.load(resumed.state(), full.state_dict())
    assert all(torch.equal(back.masters[name], master) for name, master in optimizer.masters.items())
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), half.parameters(), strict=True))


def test_masters_begin_unrounded() -> None:
    full = Small()
    unrounded = {name: parameter.detach().clone() for name, parameter in full.named_parameters()}
    optimizer = Optimizer(full.to(torch.bfloat16), TRAIN, masters=unrounded)
    assert all(torch.equal(master, unrounded[name]) for name, master in optimizer.masters.items())
    assert not torch.equal(full.weight.float(), optimizer.masters["weight"])


def test_the_fused_step_adds_micro_batches_up_in_float32() -> None:
    model = Small(torch.bfloat16)
    optimizer = Optimizer(model, TRAIN, fused=True)
    for value in (256.0, 1.0, 1.0, 1.0):
        model.bias.grad = torch.full_like(model.bias, value)
        optimizer.accumulate_gradients()
    assert optimizer.gradients["bias"].tolist() == [259.0] * 3


def test_rounding_at_random_is_fair_and_exact_in_bfloat16() -> None:
    """Its mean is the value, and it is one of the two neighbours."""
    value = 1.0 + 0.3 / 128
    bits = torch.arange(1 << 16)
    rounded = rounded_at_random(torch.full((1 << 16,), value), bits)
    assert torch.equal(rounded, rounded.bfloat16().float())
    assert set(rounded.tolist()) == {1.0, 1.0 + 1 / 128}
    assert rounded.double().mean() == pytest.approx(value, abs=2e-7)
    exact = torch.tensor([0.0, -1.5, 3.0])
    assert torch.equal(rounded_at_random(exact, torch.full((3,), 65_535)), exact)


@pytest.mark.parametrize("fused", [True, False])
def test_micro_batches_add_up_in_place_and_in_float32(fused: bool) -> None:
    model = Small(torch.bfloat16)
    optimizer, total, places = Optimizer(model, TRAIN, fused=fused), torch.zeros(5, 3), []
    for x in batches(4):
        model(x.bfloat16()).backward()
        assert model.weight.grad is not None
        total += model.weight.grad.float()
        optimizer.accumulate_gradients()
        kept = optimizer.gradients["weight"] if fused else optimizer.masters["weight"].grad
        assert kept is not None
        places.append(kept.data_ptr())
    assert torch.equal(kept, total)
    assert len(set(places[1:])) == 1, "one buffer, once the sum is wider than a gradient"


def test_moments_in_bfloat16_step_nearly_alike() -> None:
    """A second moment that would stand still if it were rounded to nearest follows its gradient."""
    models = [Small(torch.bfloat16), Small(torch.bfloat16)]
    wide, narrow = (
        Optimizer(m, TRAIN, fused=True, moments=t) for m, t in zip(models, (None, torch.bfloat16), strict=True)
    )
    for model, optimizer in zip(models, (wide, narrow), strict=True):
        for x in batches(60):
            optimizer.clear()
            model(x.bfloat16()).backward()
            optimizer.accumulate_gradients()
            optimizer.step(1e-3, optimizer.gradient_norm())
    assert {value.dtype for name, value in narrow.state().items() if name.startswith("exp")} == {torch.bfloat16}
    for name, master in wide.masters.items():
        moved = (master - narrow.masters[name]).norm() / (master - dict(Small().named_parameters())[name]).norm()
        assert name == "unused" or moved < 0.05, name
    again = Optimizer(Small(torch.bfloat16), TRAIN, fused=True, moments=torch.bfloat16)
    again.load(narrow.state(), models[1].state_dict())
    assert all(torch.equal(again.state()[name], value) for name, value in narrow.state().items())


def test_only_a_process_by_itself_decides_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor-parallel ones have whole masters, too, and must add up their norms."""
    monkeypatch.setattr("routelaw.training.optimizer._whole_on_gpu", lambda masters: True)
    spec = RunSpec(ModelSpec(Architecture(8, 1, 2, 4), 20, 8), RouterSpec(), TRAIN, "corpus")
    assert Optimizer(Transformer(spec), spec.train).skips_on_device
    two = Parallel(tensor=Group(None, 0, 2))
    assert not Optimizer(Transformer(spec, two), spec.train).skips_on_device
