"""Run as a program under Triton's interpreter: one case, compared with the plain form; a difference is an error."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl
from test_sinkhorn import KINDS, centred, problem
from torch import Tensor

from routelaw.kernels import sinkhorn_triton as kernels
from routelaw.kernels.sinkhorn import sinkhorn

TOLERANCE, CAP = 1e-3, 60


def compare(found: tuple[Tensor, ...], given: tuple[Tensor, Tensor, Tensor], cap: int = CAP) -> None:
    logits_TE, members_GM, valid_T = given
    wanted = sinkhorn(logits_TE[members_GM], valid_T[members_GM], TOLERANCE, cap)[1:]
    assert torch.equal(found[1], wanted[1]), f"{found[1]} iterations, not {wanted[1]}"
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[2], wanted[2], rtol=1e-2, atol=1e-6)


@triton.jit
def token_half(logits, member, valid, f, g, total, largest, gap, count, programs, again, M, E,
               BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr):  # fmt: skip
    kernels.pass_over_tokens(
        logits, member, valid, f, g, total, largest, gap, count, tl.program_id(0), programs, again > 0, M, E,
        BLOCK_T, BLOCK_E, 1,
    )  # fmt: skip


@triton.jit
def expert_half(g, total, largest, faint, size, programs, E, FEW: tl.constexpr):
    kernels.update_experts(g, total, largest, faint, size, tl.program_id(0), programs, E, 4, FEW, 1e-30)


def halves(logits_TE: Tensor, members_M: Tensor, valid_T: Tensor, programs: int) -> tuple[Tensor, ...]:
    """What the kernel does with one group and several programs, with a launch where they would wait."""
    M, E = len(members_M), logits_TE.shape[1]
    g_E, f_M, total, largest = torch.zeros(E), torch.empty(M), *torch.full((2, programs, E), torch.nan)
    gap, count, faint = torch.full((3, programs), torch.nan)
    for taken in range(CAP + 1):
        token_half[(programs,)](
            logits_TE, members_M, valid_T[members_M].view(torch.uint8), f_M, g_E, total, largest, gap, count,
            programs, int(taken > 0), M, E, BLOCK_T=4, BLOCK_E=triton.next_power_of_2(E),
        )  # fmt: skip
        off = gap.sum() / count.sum()
        if taken and (off <= TOLERANCE or taken == CAP):
            break
        expert_half[(programs,)](g_E, total, largest, faint, float(count.sum()), programs, E, FEW=2)
        assert faint.sum() == 0
    return g_E[None], torch.tensor([taken]), off[None]


def main(case: str) -> None:
    if case == "one program to a group":
        for kind in KINDS:
            given = problem(2, 40, 6, kind)
            compare(kernels.persistent_sinkhorn(*given, TOLERANCE, CAP), given)
    elif case == "halves put together":
        for programs in (1, 3, 7):
            given = problem(1, 50, 5, "skewed", seed=programs)
            compare(halves(given[0], given[1][0], given[2], programs), given)
    elif case == "faint":
        given = problem(1, 32, 4, "an expert out of sight")
        g_GE, _, violation_G = kernels.persistent_sinkhorn(*given, TOLERANCE, CAP)
        wanted_GE = sinkhorn(given[0][given[1]].double(), given[2][given[1]], TOLERANCE, CAP)[1]
        assert float(violation_G) <= TOLERANCE
        torch.testing.assert_close(centred(g_GE).double(), centred(wanted_GE), rtol=0, atol=5e-3)
    else:
        assert case == "capped"
        given = problem(2, 24, 4, "skewed")
        compare(kernels.persistent_sinkhorn(*given, TOLERANCE, 2), given, cap=2)


if __name__ == "__main__":
    main(sys.argv[1])
