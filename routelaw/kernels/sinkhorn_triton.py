"""Sinkhorn as one kernel: it stays on the GPU from the first iteration to the last, and reads the logits once in each.

With p = softmax(L + g) by rows, an iteration is f_i = log E − logsumexp_j(L_ij + g_j) and, since exp(L_ij + f_i) is
E·p_ij·exp(−g_j), g_j ← g_j + log T − log E − log Σ_i p_ij: one exponential per logit serves both, and nothing
overflows. Where all of an expert's p are too small for float32, the largest log p stands for their sum, and the group
does not stop on the strength of that iteration.

A routing group belongs to a team of programs. Each sums p over its own rows; they wait for each other; each adds up the
sums of a few experts and writes their new g; they wait again. Teams stop on their own, by a test that all members
compute alike: nothing is asked by the host. Sums have a fixed order, so equal input gives equal output. The launch is
cooperative: the driver starts all programs together or none, so that waiting is safe.

In the interpreter a team is one program; the tests put the two halves of an iteration together for larger ones.

Memory: T floats for f, two of E and a few for each program. Logits are read from where they lie, in the order of the
groups; 65,536 × 64 of them stay in an H200's cache.

Shapes: T tokens, E experts, G groups of M members, P programs of a team.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton  # pyrefly: ignore
import triton.language as tl  # pyrefly: ignore
from torch import Tensor


@dataclass(frozen=True)
class Tuning:
    tile: int = 4096
    """Logits that a program takes up at once: 16 for each of its threads."""
    warps: int = 8
    stages: int = 3
    """Tiles on their way at once."""
    programs_per_processor: int = 2
    registers: int = 128
    """A thread's, at most: 256 threads of 128 leave room for two programs on a multiprocessor."""


USUAL = Tuning()
COUNTER_STRIDE = 32
"""A cache line of int32 to each team's counter."""
FEW_EXPERTS = 8
"""Whose sums are read together: a sector of 32 bytes."""
FAINT = 1e-30
"""A sum of p below this may have lost terms that were too small for float32."""


@triton.jit
def pass_over_tokens(
    logits, member, valid, f, g, total, largest, gap, count, lane, programs, again, M, E,
    BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """f of this program's tokens; what they add to Σ_i p_ij, its largest log p, and the violation of the f before."""
    expert = tl.arange(0, BLOCK_E)
    there = expert < E
    g_E = tl.load(g + expert, mask=there, other=0.0, cache_modifier=".cg")
    total_TE = tl.zeros((BLOCK_T, BLOCK_E), tl.float32)
    largest_TE = tl.full((BLOCK_T, BLOCK_E), float("-inf"), tl.float32)
    gap_T = tl.zeros((BLOCK_T,), tl.float32)
    count_T = tl.zeros((BLOCK_T,), tl.float32)
    log_experts = tl.log((lane * 0 + E).to(tl.float32))  # E = 1 is a constant to the compiler, not a tensor
    for first in tl.range(lane * BLOCK_T, M, programs * BLOCK_T, num_stages=STAGES):
        place = first + tl.arange(0, BLOCK_T)
        token = tl.load(member + place, mask=place < M, other=0)
        counts = tl.load(valid + place, mask=place < M, other=0) != 0
        mask = counts[:, None] & there[None, :]
        score_TE = tl.load(logits + token[:, None] * E + expert[None, :], mask=mask, other=float("-inf"))
        score_TE = tl.where(mask, score_TE.to(tl.float32) + g_E[None, :], float("-inf"))
        top_T = tl.where(counts, tl.max(score_TE, 1), 0.0)
        power_TE = tl.exp(score_TE - top_T[:, None])
        sum_T = tl.where(counts, tl.sum(power_TE, 1), 1.0)
        log_sum_T = top_T + tl.log(sum_T)
        f_T = tl.where(counts, log_experts - log_sum_T, 0.0)
        before_T = tl.load(f + place, mask=(place < M) & again, other=0.0)
        gap_T += tl.where(counts & again, tl.abs(tl.exp(before_T - f_T) - 1.0), 0.0)
        tl.store(f + place, f_T, mask=place < M)
        count_T += counts.to(tl.float32)
        total_TE += power_TE / sum_T[:, None]
        largest_TE = tl.maximum(largest_TE, score_TE - log_sum_T[:, None])
    tl.store(total + lane * E + expert, tl.sum(total_TE, 0), mask=there)
    tl.store(largest + lane * E + expert, tl.max(largest_TE, 0), mask=there)
    tl.store(gap + lane, tl.sum(gap_T))
    tl.store(count + lane, tl.sum(count_T))


@triton.jit
def update_experts(
    g, total, largest, faint, size, lane, programs, E,
    BLOCK_P: tl.constexpr, FEW: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    """The new g of this program's few experts, and whether any of them was a guess."""
    guesses = tl.zeros((FEW,), tl.float32)
    log_share = tl.log(tl.maximum(size, 1.0)) - tl.log((lane * 0 + E).to(tl.float32))
    for first in range(lane * FEW, E, programs * FEW):
        expert = first + tl.arange(0, FEW)
        sum_E = tl.zeros((FEW,), tl.float32)
        largest_E = tl.full((FEW,), float("-inf"), tl.float32)
        for other in range(0, programs, BLOCK_P):
            program = other + tl.arange(0, BLOCK_P)
            mask = (program < programs)[:, None] & (expert < E)[None, :]
            cell = program[:, None] * E + expert[None, :]
            sum_E += tl.sum(tl.load(total + cell, mask=mask, other=0.0, cache_modifier=".cg"), 0)
            most_PE = tl.load(largest + cell, mask=mask, other=float("-inf"), cache_modifier=".cg")
            largest_E = tl.maximum(largest_E, tl.max(most_PE, 0))
        some = (tl.zeros((FEW,), tl.float32) + size) > 0  # padding alone has nothing to balance
        guess = some & (expert < E) & (sum_E < LEAST)
        log_sum_E = tl.where(guess, largest_E, tl.log(tl.where(some & (expert < E) & (sum_E >= LEAST), sum_E, 1.0)))
        g_E = tl.load(g + expert, mask=expert < E, other=0.0, cache_modifier=".cg")
        g_E = tl.where(some, g_E + log_share - log_sum_E, 0.0)
        tl.store(g + expert, g_E, mask=expert < E)
        guesses += guess.to(tl.float32)
    tl.store(faint + lane, tl.sum(guesses))


@triton.jit
def sum_of_team(values, programs, BLOCK_P: tl.constexpr):
    sum_P = tl.zeros((BLOCK_P,), tl.float32)
    for other in range(0, programs, BLOCK_P):
        program = other + tl.arange(0, BLOCK_P)
        sum_P += tl.load(values + program, mask=program < programs, other=0.0, cache_modifier=".cg")
    return tl.sum(sum_P)


@triton.jit
def wait_for_team(counter, arrivals):
    """Until so many programs have come, counted since the launch; what they wrote before is then to be seen."""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    while tl.atomic_add(counter, 0, sem="acq_rel", scope="gpu") < arrivals:
        pass
    tl.debug_barrier()


@triton.jit(do_not_specialize=["max_iterations", "programs", "teams", "groups"])
def sinkhorn_kernel(
    logits, member, valid, f, g, total, largest, gap, count, faint, counter, iterations, violation,
    tolerance, max_iterations, programs, teams, groups, M, E,
    BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_P: tl.constexpr, FEW: tl.constexpr, LEAST: tl.constexpr,
    STRIDE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    team, lane = tl.program_id(0) // programs, tl.program_id(0) % programs
    total += team * programs * E
    largest += team * programs * E
    gap += team * programs
    count += team * programs
    faint += team * programs
    counter += team * STRIDE
    arrivals = programs * 0
    for group in range(team, groups, teams):
        taken = max_iterations * 0
        guesses = tolerance * 0.0
        off = tolerance * 0.0
        going = max_iterations > 0
        while going:
            pass_over_tokens(
                logits, member + group * M, valid + group * M, f + group * M, g + group * E, total, largest, gap, count,
                lane, programs, taken > 0, M, E, BLOCK_T, BLOCK_E, STAGES,
            )  # fmt: skip
            arrivals += programs
            wait_for_team(counter, arrivals)
            size = sum_of_team(count, programs, BLOCK_P)
            off = sum_of_team(gap, programs, BLOCK_P) / tl.maximum(size, 1.0)
            off = tl.where((taken == 0) | (guesses > 0), float("inf"), off)
            going = (off > tolerance) & (taken < max_iterations)
            if going:
                update_experts(g + group * E, total, largest, faint, size, lane, programs, E, BLOCK_P, FEW, LEAST)
                taken += 1
            arrivals += programs
            wait_for_team(counter, arrivals)
            guesses = sum_of_team(faint, programs, BLOCK_P)
        if lane == 0:
            tl.store(iterations + group, taken.to(tl.int64))
            tl.store(violation + group, off)


@torch.no_grad()
def persistent_sinkhorn(
    logits_TE: Tensor,
    members_GM: Tensor,
    valid_T: Tensor,
    tolerance: float,
    max_iterations: int,
    tuning: Tuning = USUAL,
) -> tuple[Tensor, Tensor, Tensor]:
    """(g_GE, iterations_G, violation_G), as the plain form has them."""
    (groups, members), experts = members_GM.shape, logits_TE.shape[1]
    block_experts = max(triton.next_power_of_2(experts), 2)
    block_tokens = max(min(tuning.tile // block_experts, 512), 1)
    at_once = tuning.programs_per_processor * processors(logits_TE.device)
    programs = max(1, min(at_once // groups, -(-members // block_tokens)))
    teams = min(groups, max(at_once // programs, 1))

    def floats(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=logits_TE.device)

    g_GE, violation_G = floats(groups, experts).zero_(), floats(groups)
    iterations_G = torch.empty_like(violation_G, dtype=torch.int64)
    counters = torch.zeros(teams * COUNTER_STRIDE, dtype=torch.int32, device=g_GE.device)
    on_gpu = {"num_warps": tuning.warps, "maxnreg": tuning.registers, "launch_cooperative_grid": True}
    sinkhorn_kernel[(teams * programs,)](
        logits_TE.contiguous(), members_GM.contiguous(), valid_T[members_GM].view(torch.uint8),
        floats(groups, members), g_GE, floats(teams, programs, experts), floats(teams, programs, experts),
        *floats(3, teams, programs), counters, iterations_G, violation_G,
        tolerance, max_iterations, programs, teams, groups, members, experts,
        BLOCK_T=block_tokens, BLOCK_E=block_experts, BLOCK_P=32,
        FEW=FEW_EXPERTS if programs > 1 else min(block_experts, 64), LEAST=FAINT, STRIDE=COUNTER_STRIDE,
        STAGES=tuning.stages, **(on_gpu if g_GE.is_cuda else {}),
    )  # fmt: skip
    return g_GE, iterations_G, violation_G


@cache
def processors(device: torch.device) -> int:
    """None where the kernel is interpreted, program after program: there nobody can wait for the next."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 0
