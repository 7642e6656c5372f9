"""What a fitted law implies: effective parameters, cut-offs, slopes and level curves. For any law in (N, E).

Everything is found by solving the law itself, on many parameter vectors at once, so it holds for laws without closed
forms and for every resample of a bootstrap alike. For the paper's law the closed forms are

    log N̄ = [α(Ê)·log N + b·log(Ê/E_start)] / α(E_start),   α(x) = a + c·log x,       N_cut = 10^(−b/c)

and the tests compare the two. Results are infinite where no finite size or expert count does it.

Shapes: B parameter vectors. Every function takes params_BP and scalars and returns (B,).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from routelaw.errors import InputError
from routelaw.laws.law import Array, Law

LOG_SIZE_RANGE = (0.0, 40.0)
LOG_EXPERTS_RANGE = (0.0, 12.0)
REFERENCE_EXPERTS = 64.0
LEVELLED_OFF = 1.01
"""A law has levelled off in E if a thousand times as many experts as 10⁹ add less than this factor to N̄."""
TYPICAL_LOG_SIZE = 8.0
NEWTON_STEPS = 8


def check_law(law: Law) -> None:
    if not set(law.inputs) <= {"active_params", "experts"} or "active_params" not in law.inputs:
        raise InputError(
            f"law {law.name} is not a law in (N, E): effective parameters and cut-offs need one, e.g. saturated."
        )


def log_loss_at(law: Law, params_BP: Array, active_params: float | Array, experts: float | Array) -> Array:
    """log10 L, (B,). A size or expert count may be one number for all vectors or one for each."""
    x = _inputs(len(params_BP), active_params, experts)
    return np.broadcast_to(law.log_loss(params_BP, x), (len(params_BP), 1))[:, 0]


def _inputs(count: int, active_params: float | Array, experts: float | Array) -> dict[str, Array]:
    return {
        "active_params": np.broadcast_to(np.asarray(active_params, float), (count,))[:, None],
        "experts": np.broadcast_to(np.asarray(experts, float), (count,))[:, None],
    }


def effective_params(law: Law, params_BP: Array, active_params: float | Array, experts: float) -> Array:
    """N̄: the dense size with the loss of (N, E)."""
    return size_for_loss(law, params_BP, log_loss_at(law, params_BP, active_params, experts), 1.0)


def size_for_loss(law: Law, params_BP: Array, log_loss_B: Array | float, experts: float) -> Array:
    """The size N whose loss with E experts is the one given: a point of a level curve."""
    target_B = np.broadcast_to(np.asarray(log_loss_B, float), (len(params_BP),))
    log_size_B = np.full(len(params_BP), TYPICAL_LOG_SIZE)
    with np.errstate(all="ignore"):
        for _ in range(NEWTON_STEPS):
            miss_B = log_loss_at(law, params_BP, 10.0**log_size_B, experts) - target_B
            if np.abs(miss_B).max() < 1e-13:
                break
            slope_B, _ = slopes_at(law, params_BP, 10.0**log_size_B, experts)
            log_size_B = np.clip(log_size_B - miss_B / slope_B, *LOG_SIZE_RANGE)
        solved_B = np.abs(log_loss_at(law, params_BP, 10.0**log_size_B, experts) - target_B) < 1e-12
    hard = np.flatnonzero(~solved_B)
    if hard.size:

        def too_small(log_size_H: Array) -> Array:
            return log_loss_at(law, params_BP[hard], 10.0**log_size_H, experts) > target_B[hard]

        log_size_B[hard] = _bisect(too_small, *LOG_SIZE_RANGE, hard.size)
    return 10.0**log_size_B


def experts_for_loss(law: Law, params_BP: Array, log_loss_B: Array | float, active_params: float) -> Array:
    """The expert count E with which a model of size N reaches the loss given; infinite where none does."""
    target_B = np.broadcast_to(np.asarray(log_loss_B, float), (len(params_BP),))

    def too_few(log_experts_B: Array) -> Array:
        return log_loss_at(law, params_BP, active_params, 10.0**log_experts_B) > target_B

    return 10.0 ** _bisect(too_few, *LOG_EXPERTS_RANGE, len(params_BP))


def experts_for_effective(law: Law, params_BP: Array, active_params: float, effective: float) -> Array:
    """The inverse of EPC: experts that lift a model of size N to the performance of a dense model of size N̄."""
    return experts_for_loss(law, params_BP, log_loss_at(law, params_BP, effective, 1.0), active_params)


def cutoff(law: Law, params_BP: Array, experts: float = REFERENCE_EXPERTS) -> Array:
    """N_cut: the size beyond which E experts no longer beat one. Infinite if that never happens, 0 if they never help.

    Laws bilinear in the logarithms have one N_cut for all E; for others it is that of `experts`.
    """
    closed_B = law.log_cutoff(params_BP, experts)
    if closed_B is not None:
        return 10.0 ** np.clip(closed_B, -np.inf, 300.0) * np.where(closed_B > 300.0, np.inf, 1.0)
    grid = np.linspace(4.0, LOG_SIZE_RANGE[1], 217)
    x = {"active_params": 10.0**grid, "experts": np.full(grid.size, experts)}
    gain_BG = law.log_loss(params_BP, {**x, "experts": np.ones(grid.size)}) - law.log_loss(params_BP, x)
    helps_BG = np.broadcast_to(gain_BG > 1e-12, (len(params_BP), grid.size))
    helps_B, ends_B = helps_BG.any(1), ~helps_BG[:, -1]
    last_B = grid.size - 1 - helps_BG[:, ::-1].argmax(1)
    low_B, high_B = grid[last_B], grid[np.minimum(last_B + 1, grid.size - 1)]

    def still_helps(log_size_B: Array) -> Array:
        one = log_loss_at(law, params_BP, 10.0**log_size_B, 1.0)
        return log_loss_at(law, params_BP, 10.0**log_size_B, experts) < one

    for _ in range(60):
        middle_B = (low_B + high_B) / 2
        helps = still_helps(middle_B)
        low_B, high_B = np.where(helps, middle_B, low_B), np.where(helps, high_B, middle_B)
    return np.where(~helps_B, 0.0, np.where(ends_B, 10.0**low_B, np.inf))


def max_effective_params(law: Law, params_BP: Array, active_params: float) -> Array:
    """N̄_max(N) = max over E of N̄(N, E). Infinite where more experts always help, as in laws without saturation."""
    log_experts_G = np.linspace(*LOG_EXPERTS_RANGE, 121)
    x = {"active_params": np.full(log_experts_G.size, active_params), "experts": 10.0**log_experts_G}
    with np.errstate(all="ignore"):
        log_loss_BG = np.broadcast_to(law.log_loss(params_BP, x), (len(params_BP), log_experts_G.size))
    log_loss_BG = np.where(np.isnan(log_loss_BG), np.inf, log_loss_BG)
    most_B = size_for_loss(law, params_BP, log_loss_BG.min(1), 1.0)
    before_B = size_for_loss(law, params_BP, log_loss_BG[:, log_experts_G <= 9.0].min(1), 1.0)
    return np.where(most_B > LEVELLED_OFF * before_B, np.inf, np.maximum(most_B, active_params))


def slopes_at(law: Law, params_BP: Array, active_params: float | Array, experts: float | Array) -> tuple[Array, Array]:
    """a(E) = ∂ log L/∂ log N and b(N) = ∂ log L/∂ log Ê (log E for laws without saturation), each (B,)."""
    shape = (len(params_BP), 1)
    by_size, by_experts = law.slopes(params_BP, _inputs(len(params_BP), active_params, experts))
    return np.broadcast_to(by_size, shape)[:, 0], np.broadcast_to(by_experts, shape)[:, 0]


def _bisect(is_low: Callable[[Array], Array], low: float, high: float, count: int) -> Array:
    """Where `is_low` turns from true to false, for each of `count` problems; inf if never, −inf if it starts false."""
    low_B, high_B = np.full(count, low), np.full(count, high)
    with np.errstate(all="ignore"):
        never_B, always_B = is_low(high_B), ~is_low(low_B)
        for _ in range(64):
            middle_B = (low_B + high_B) / 2
            below_B = is_low(middle_B)
            low_B, high_B = np.where(below_B, middle_B, low_B), np.where(below_B, high_B, middle_B)
    return np.where(never_B, np.inf, np.where(always_B, -np.inf, (low_B + high_B) / 2))
