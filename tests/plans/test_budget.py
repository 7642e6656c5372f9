"""Plans against brute force: every model of the ladder counted and predicted one by one."""

import numpy as np
import pandas as pd
import pytest

from routelaw.errors import InputError
from routelaw.fitting import fit_law, select_points
from routelaw.fitting.fit_report import judge
from routelaw.laws import get_law
from routelaw.plans.budget import EXPERT_CHOICES, Budget, best_models, check_countable
from routelaw.plans.literature import published
from routelaw.plans.predictor import Predictor
from routelaw.runs.table import RunTable
from routelaw.specs.counting import count
from routelaw.specs.sizes import PAPER_SIZES

NAMES = ("clark2022/s-base", "clark2022/rl-r", "clark2022/hash")


@pytest.fixture(scope="module")
def routers() -> list[Predictor]:
    return [published(name) for name in NAMES]


def everything(routers, bytes_per_param: float = 2.0) -> pd.DataFrame:
    """One row per router, size and E, dense models among them under each router's fit."""
    rows = []
    for predictor in routers:
        for size, architecture in PAPER_SIZES.items():
            for experts in EXPERT_CHOICES:
                router = predictor.router if experts > 1 else "dense"
                made = count(architecture, router, experts)
                inputs = {"active_params": np.array([made.active_params]), "experts": np.array([experts])}
                loss = float(10 ** predictor.log_loss(**inputs)[0])
                memory = bytes_per_param * (made.total_params + 32_000 * architecture.d_model)
                rows.append((router, size, experts, made.total_params, made.flops_per_token, memory, loss))
    return pd.DataFrame(
        rows, columns=["router", "size", "experts", "total_params", "flops_per_token", "memory", "loss"]
    )


@pytest.mark.parametrize(
    "limits",
    [
        {"total_params": 1e9},
        {"total_params": 30e9, "flops_per_token": 1.5e9},
        {"flops_per_token": 1e9},
        {"memory": 5e9},
        {"memory": 80e9, "total_params": 50e9, "flops_per_token": 5e9},
    ],
    ids=lambda limits: ", ".join(limits),
)
def test_nothing_within_the_limits_is_better(routers, limits) -> None:
    allowed = everything(routers)
    for column, limit in limits.items():
        allowed = allowed[allowed[column] <= limit]
    allowed = allowed.sort_values(["loss", "flops_per_token"]).drop_duplicates(["router", "size", "experts"]).head(10)
    budget = Budget(**{"memory_bytes" if name == "memory" else name: value for name, value in limits.items()})
    best = best_models(routers, budget, PAPER_SIZES, top=10)
    assert [(c.router, c.size, c.experts) for c in best] == list(
        allowed[["router", "size", "experts"]].itertuples(index=False, name=None)
    )
    assert [c.loss for c in best] == pytest.approx(allowed["loss"].tolist(), rel=1e-12)


@pytest.mark.parametrize("target", [3.0, 2.4, 2.1])
def test_the_cheapest_that_reaches_a_loss(routers, target) -> None:
    reaching = everything(routers)
    reaching = reaching[reaching["loss"] <= target].sort_values(["flops_per_token", "total_params", "loss"])
    best = best_models(routers, Budget(target_loss=target), PAPER_SIZES, top=1)[0]
    assert (best.router, best.size, best.experts) == tuple(reaching[["router", "size", "experts"]].iloc[0])
    assert best.loss <= target
    assert best.counts.flops_per_token == reaching["flops_per_token"].min()


def test_a_target_within_limits(routers) -> None:
    rows = everything(routers)
    within = rows[(rows["loss"] <= 2.3) & (rows["total_params"] <= 3e9)]
    best = best_models(routers, Budget(target_loss=2.3, total_params=3e9), PAPER_SIZES, top=1)[0]
    assert best.counts.flops_per_token == within["flops_per_token"].min()
    with pytest.raises(
        InputError, match=f"the lowest predicted is {rows[rows['total_params'] <= 1e8]['loss'].min():.4f}"
    ):
        best_models(routers, Budget(target_loss=2.3, total_params=1e8), PAPER_SIZES)


def test_memory_counts_embeddings(routers) -> None:
    best = best_models(routers[:1], Budget(memory_bytes=1e9, bytes_per_param=1), PAPER_SIZES, top=100)
    for c in best:
        assert c.memory_bytes == c.counts.total_params + 32_000 * PAPER_SIZES[c.size].d_model
    exactly = best[0].memory_bytes
    tight = best_models(routers[:1], Budget(memory_bytes=exactly - 1, bytes_per_param=1), PAPER_SIZES, top=1)[0]
    assert (tight.size, tight.experts) != (best[0].size, best[0].experts)


def test_a_dense_model_is_listed_once(routers) -> None:
    best = best_models(routers, Budget(total_params=20e9), PAPER_SIZES, top=500)
    listed = [c.size for c in best if c.experts == 1]
    assert len(listed) == len(set(listed)) == len(PAPER_SIZES)
    assert {c.router for c in best if c.experts == 1} == {"dense"}


def test_extrapolation_is_flagged(routers) -> None:
    best = best_models(routers, Budget(total_params=100e9), PAPER_SIZES, experts=(1, 64, 1024), top=500)
    for c in best:
        assert ("largest fitted" in c.extrapolation) == (c.size == "7B")
        assert ("E is beyond the 512 fitted" in c.extrapolation) == (c.experts == 1024)


def test_choices_may_come_from_a_generator(routers) -> None:
    budget = Budget(total_params=5e9)
    lazy = best_models(routers, budget, PAPER_SIZES, experts=(2**i for i in range(10)), top=500)
    assert lazy == best_models(routers, budget, PAPER_SIZES, top=500)


def losses(k: int, routing_frequency: float) -> RunTable:
    rng, rows = np.random.default_rng(0), []
    for size in ("15M", "55M", "130M", "370M"):
        for experts in (2, 8, 32, 128):
            made = count(PAPER_SIZES[size], "switch", experts)
            loss = 13 * made.active_params**-0.083 * experts**-0.03 * (1 + 0.002 * rng.standard_normal())
            rows.append(
                (f"{size}-{experts}", "my-router", size, experts, made.active_params, k, routing_frequency, loss)
            )
    columns = ["run_id", "router", "size", "experts", "active_params", "k", "routing_frequency", "loss_validation"]
    return RunTable.from_frame(pd.DataFrame(rows, columns=columns), "mine")


def test_a_fit_of_ones_own() -> None:
    """It plans its own K and R, has intervals, and a dense model lies below the fewest experts it has seen."""
    fit = fit_law("bilinear", select_points(losses(2, 1.0), "my-router"))
    mine = Predictor.from_report(judge(fit, draws=60))
    assert (mine.k, mine.routing_frequency, mine.experts_range) == (2, 1.0, (2, 128))
    best = best_models([mine], Budget(total_params=2e9), PAPER_SIZES, ks=(1, 4), frequencies=(0.5,), top=500)
    for c in best:
        assert c.interval is not None
        assert c.interval[0] <= c.loss <= c.interval[1]
        assert ("E is below the 2 fitted" in c.extrapolation) == (c.experts == 1)
        if c.experts > 1:
            assert (c.router, c.k, c.routing_frequency) == ("my-router", 2, 1.0)
            assert c.counts == count(PAPER_SIZES[c.size], "switch", c.experts, k=2, routing_frequency=1.0)


@pytest.mark.parametrize(
    "limits",
    [{}, {"total_params": 0}, {"memory_bytes": -1.0}, {"target_loss": np.nan}, {"flops_per_token": np.inf},
     {"total_params": 1e9, "bytes_per_param": 0}],
)  # fmt: skip
def test_what_is_no_budget(limits) -> None:
    with pytest.raises(InputError):
        Budget(**limits)


def test_no_model_is_small_enough(routers) -> None:
    with pytest.raises(InputError, match="no model of this ladder fits the budget"):
        best_models(routers, Budget(total_params=1e6), PAPER_SIZES)


def mixed_losses() -> RunTable:
    """E = 8 and 64 at every K and R of a few, so that F and P/F vary with each of them."""
    rng, rows = np.random.default_rng(0), []
    for size in ("15M", "55M", "130M", "370M"):
        for experts, k, r in ((8, 1, 0.5), (64, 1, 0.5), (8, 2, 0.5), (64, 2, 0.5), (64, 1, 1.0)):
            made = count(PAPER_SIZES[size], "switch", experts, k=k, routing_frequency=r)
            loss = 13 * made.flops_per_token**-0.08 * made.total_params**-0.02 * (1 + 0.002 * rng.standard_normal())
            rows.append((f"{size}-{experts}-{k}-{r}", "my-router", size, experts, made.active_params,
                         made.total_params, made.flops_per_token, k, r, loss))  # fmt: skip
    columns = ["run_id", "router", "size", "experts", "active_params", "total_params", "flops_per_token", "k",
               "routing_frequency", "loss_validation"]  # fmt: skip
    return RunTable.from_frame(pd.DataFrame(rows, columns=columns), "mine")


def test_architectures_and_axes_never_fitted_are_flagged() -> None:
    law = get_law("compute")
    mine = Predictor.from_report(judge(fit_law(law, select_points(mixed_losses(), "my-router", law)), draws=50))
    assert mine.architectures == {(1, 0.5), (2, 0.5), (1, 1.0)}
    low, high = mine.axis_ranges["params_per_flop"]
    best = best_models([mine], Budget(total_params=50e9), PAPER_SIZES, experts=(8, 64, 512), top=500)
    assert {(c.k, c.routing_frequency) for c in best} == {(k, r) for k in (1, 2, 4) for r in (0.25, 0.5, 1.0)}
    for c in best:
        seen = (c.k, c.routing_frequency) in mine.architectures
        unseen = f"no model of K = {c.k} with R = {c.routing_frequency:g} was fitted"
        assert (unseen in c.extrapolation) == (not seen)
        utilisation = c.counts.total_params / c.counts.flops_per_token
        outside = not low * 0.99 <= utilisation <= high * 1.01
        assert ("parameters per FLOP" in c.extrapolation) == outside
        assert ("compute per token" in c.extrapolation) == (
            not mine.axis_ranges["flops_per_token"][0] * 0.99
            <= c.counts.flops_per_token
            <= mine.axis_ranges["flops_per_token"][1] * 1.01
        )


def test_far_outside_in_few_digits(routers) -> None:
    said = {1e30: "size is 7.6e+20× the largest fitted", 1e12: "size is 764× the largest fitted"}
    assert {size: routers[0].extrapolation(size, 64) for size in said} == said


def test_too_few_sizes_to_resample_have_profile_intervals() -> None:
    table = losses(1, 0.5)
    points = select_points(table, "my-router", sizes=("15M", "370M"))
    mine = Predictor.from_report(judge(fit_law("bilinear", points)))
    assert mine.draws is None
    best = best_models([mine], Budget(total_params=1e9), PAPER_SIZES, top=2)
    for c in best:
        assert c.interval is not None
        assert c.interval[0] < c.loss < c.interval[1]
    assert any("needs at least 3 sizes" in warning for warning in mine.warnings)


def test_which_laws_can_be_counted() -> None:
    for name in ("saturated", "dense", "compute", "abnar2025"):
        check_countable(get_law(name))
    for name in ("experts", "kaplan2020"):
        with pytest.raises(InputError, match="cannot rank models"):
            check_countable(get_law(name))
