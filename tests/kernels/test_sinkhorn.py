"""The plain form against POT, and the kernel against the plain form: interpreted on a CPU, itself on a GPU.

The interpreter (TRITON_INTERPRET=1 before triton is imported; numpy below 2.4 for triton 3.6) runs in a process of its
own, for it changes triton for good. Without triton these tests are skipped.
"""

from __future__ import annotations

import pytest
import torch
from places import interpret, interpreter, on_gpu
from torch import Tensor

from routelaw.kernels.sinkhorn import expert_potentials, expert_potentials_op, log_sum_exp, sinkhorn


def problem(groups: int, members: int, experts: int, kind: str, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = groups * members
    logits_TE = 2 * torch.randn(tokens, experts, generator=generator)
    valid_T = torch.ones(tokens, dtype=torch.bool)
    if kind == "skewed":
        logits_TE[:, 0] += 4
    if kind == "padded":
        valid_T = torch.rand(tokens, generator=generator) > 0.3
    if kind == "one group empty":
        valid_T[:members] = False
    if kind == "an expert out of sight":
        logits_TE[:, -1] -= 150  # its softmax is zero in float32
    members_GM = torch.arange(tokens).view(groups, members)
    if kind == "shuffled":
        members_GM = torch.randperm(tokens, generator=generator).view(groups, members)
    return logits_TE, members_GM, valid_T


def centred(g_GE: Tensor) -> Tensor:
    """Potentials are determined up to a constant, which depends on the way that led to them."""
    return g_GE - g_GE.mean(1, keepdim=True)


KINDS = ["even", "skewed", "padded", "one group empty", "shuffled"]


def test_the_operation_is_the_plain_form_on_a_cpu() -> None:
    for kind in KINDS:
        logits_TE, members_GM, valid_T = problem(3, 40, 7, kind)
        found = expert_potentials(logits_TE, members_GM, valid_T, 1e-3, 100)
        wanted = sinkhorn(logits_TE[members_GM], valid_T[members_GM], 1e-3, 100)[1:]
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_logarithm_of_a_sum_is_torchs_to_the_bit(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for scale in (0.1, 10.0, 100.0, 1e4):
        values = scale * torch.randn(3, 700, 9, generator=generator, dtype=dtype)
        values[:, ::3, ::2] = -torch.inf
        values[1, 5] = -torch.inf
        values[2] = -torch.inf
        values[0, 1, 1], values[0, 2, 3] = torch.inf, torch.nan
        for dim in (1, 2):
            torch.testing.assert_close(
                log_sum_exp(values, dim), torch.logsumexp(values, dim), rtol=0, atol=0, equal_nan=True
            )


def test_a_compiler_sees_one_operation_of_the_right_shape() -> None:
    given = (*problem(3, 40, 7, "even"), 1e-2, 50)
    torch.library.opcheck(expert_potentials_op, given, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("case", ["one program to a group", "halves put together", "faint", "capped"])
@pytest.mark.parametrize("_", [pytest.param("", marks=interpreter)])
def test_the_interpreted_kernel(case: str, _: str) -> None:
    """See interpreted_sinkhorn.py for what is compared."""
    interpret("interpreted_sinkhorn.py", case)


SHAPES = [(1, 65536, 64), (4, 16384, 64), (1, 8192, 512), (3, 1000, 7), (600, 64, 16), (1, 2048, 1), (2, 4096, 2)]


@pytest.mark.parametrize("kind", [*KINDS, "an expert out of sight"])
@pytest.mark.parametrize(("groups", "members", "experts"), [pytest.param(*s, marks=on_gpu) for s in SHAPES])
def test_the_kernel_on_a_gpu(groups: int, members: int, experts: int, kind: str) -> None:
    """Against float64. Iterations may differ by one where a violation is about the tolerance."""
    tolerance = 1e-2
    given = problem(groups, members, experts, kind)
    g_GE, iterations_G, violation_G = expert_potentials(*(x.cuda() for x in given), tolerance, 200)
    logits_TE, members_GM, valid_T = given
    _, wanted_GE, wanted_G, _ = sinkhorn(logits_TE[members_GM].double(), valid_T[members_GM], tolerance, 200)
    g_GE, iterations_G = g_GE.cpu().double(), iterations_G.cpu()
    assert (violation_G <= tolerance).all()
    assert (iterations_G - wanted_G).abs().max() <= (2 if kind == "an expert out of sight" else 1)
    apart_GE = (centred(g_GE) - centred(wanted_GE)).abs()
    assert apart_GE.mean(1).max() < 5 * tolerance, "violations are sums over all experts, so only their mean is bound"
    if kind != "an expert out of sight":
        same_G = iterations_G == wanted_G
        torch.testing.assert_close(g_GE[same_G], wanted_GE[same_G], rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("_", [pytest.param("", marks=on_gpu)])
def test_equal_input_gives_equal_output_and_nothing_waits_for_the_host(_: str) -> None:
    given = [x.cuda() for x in problem(4, 16384, 64, "shuffled")]
    first = expert_potentials(*given, 1e-2, 200)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        again = [expert_potentials(*given, 1e-2, 200) for _ in range(20)]
    finally:
        torch.cuda.set_sync_debug_mode(before)
    for other in again:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
