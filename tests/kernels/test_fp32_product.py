"""A float32 product of bfloat16 numbers: as exact as with everything widened, forwards and backwards."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from routelaw.kernels import fp32_product
from routelaw.kernels.fp32_product import bf16_linear, fp32_linear, in_two

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPES = [(512, 96, 64), (257, 40, 3), (1, 8, 1), (2048, 64, 512)]


def problem(shape: tuple[int, int, int], device: str, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """x, weight, and a gradient whose numbers differ by orders of magnitude."""
    T, D, E = shape
    draw = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(n, D, generator=draw).to(torch.bfloat16) for n in (T, E))
    gradient = torch.randn(T, E, generator=draw) * 10 ** (3 * torch.rand(T, E, generator=draw) - 3)
    return x.to(device).requires_grad_(), weight.to(device).requires_grad_(), gradient.to(device)


def relative(found: Tensor, exact: Tensor) -> float:
    return float((found.detach().double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_float64(shape: tuple[int, int, int], device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    x, weight, gradient = problem(shape, device)
    made = bf16_linear(x, weight)
    assert made.dtype == torch.float32
    of_x, of_weight = torch.autograd.grad(made, [x, weight], gradient)
    assert of_x.dtype == of_weight.dtype == torch.bfloat16
    wide_x, wide_weight = x.detach().double(), weight.detach().double()
    assert relative(made, F.linear(wide_x, wide_weight)) < 1e-6
    rounding = 2**-9  # what is left when a number is rounded to bfloat16
    assert relative(of_x, gradient.double() @ wide_weight) < rounding
    assert relative(of_weight, gradient.double().T @ wide_x) < rounding


def test_both_halves_of_a_gradient_count() -> None:
    """Where the first ones cancel, nothing but the second is left."""
    x = torch.ones(4096, 8, dtype=torch.bfloat16)
    weight = torch.zeros(2, 8, dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.full((4096, 2), 1 + 2**-9)  # bfloat16 makes 1 of it
    gradient[::2] = -1
    (of_weight,) = torch.autograd.grad(bf16_linear(x, weight), [weight], gradient)
    assert torch.equal(of_weight.float(), torch.full((2, 8), 2048 * 2**-9))


def test_a_compiler_takes_it_whole() -> None:
    x, weight, gradient = problem((64, 16, 4), "cpu")
    compiled = torch.compile(lambda x, weight: bf16_linear(x * 2, weight).sin(), fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(x, weight), [x, weight], gradient)
    wanted = torch.autograd.grad(bf16_linear(x * 2, weight).sin(), [x, weight], gradient)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_elsewhere_everything_is_widened(dtype: torch.dtype) -> None:
    x, weight = torch.randn(5, 4).to(dtype), torch.randn(3, 4).to(dtype)
    wide = torch.promote_types(dtype, torch.float32)
    assert torch.equal(fp32_linear(x, weight), F.linear(x.to(wide), weight.to(wide)))


def test_which_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow on a GPU alone, and in bfloat16 alone."""
    taken: list[Tensor] = []
    monkeypatch.setattr(fp32_product, "bf16_linear", lambda x, weight: taken.append(x) or bf16_linear(x, weight))
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        for dtype in (torch.bfloat16, torch.float32):
            x, weight = (torch.ones(8, 8, device=device, dtype=dtype) for _ in range(2))
            fp32_linear(x, weight)
    assert [(x.device.type, x.dtype) for x in taken] == [("cuda", torch.bfloat16)] * torch.cuda.is_available()


def test_what_is_not_asked_for_is_not_computed() -> None:
    """A baseline's input has no gradient."""
    x, weight, gradient = problem((64, 16, 4), "cpu")
    with torch.profiler.profile(acc_events=True) as profile:
        torch.autograd.grad(bf16_linear(x.detach(), weight), [weight], gradient)
    products = [event.name for event in profile.events() if event.name == "aten::mm"]
    assert len(products) == 2  # forwards, and of the weight


@pytest.mark.parametrize("operation", ["bf16_linear", "in_two", "weight_gradient"])
def test_a_compiler_sees_operations_of_the_right_shape(operation: str) -> None:
    x, weight, gradient = (t.detach() for t in problem((64, 16, 4), "cpu"))
    given = {"bf16_linear": (x, weight), "in_two": (gradient,), "weight_gradient": (in_two(gradient), x)}[operation]
    utils = ("test_schema", "test_faketensor")
    torch.library.opcheck(getattr(fp32_product, operation), given, test_utils=utils)


@pytest.mark.filterwarnings("ignore")  # tracing, torch warns of itself
def test_halves_survive_a_compiler() -> None:
    """One that looked inside would keep the rounding to itself, and the second half would be zero."""
    _, _, gradient = problem((64, 16, 4), "cpu")
    compiled = torch.compile(lambda g: in_two(g * 1.0), fullgraph=True)
    assert torch.equal(compiled(gradient), in_two(gradient))
    assert in_two(gradient)[:, 4:].abs().max() > 0
