"""Which technique wins, and how surely: against t-tests, and against what chance must look like."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from routelaw.fitting.pairwise import CLEARLY, OPEN, seed_noise, stands_out
from routelaw.laws import get_law
from routelaw.report.page import Bullets, Grid, Text
from routelaw.report.runs.analysis import Analysis, analyse
from routelaw.report.runs.summary import comparison_text, gains
from routelaw.runs.table import RunTable

SIZES = (1e6, 4e6, 16e6)


@pytest.fixture(autouse=True)
def few_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routelaw.report.runs.analysis.comparable_laws", lambda: [get_law("separable")])


def made(lead, *, sizes=SIZES, experts=(2, 4, 8), seeds=1, noise=0.0, dense=4.0, rng=None) -> Analysis:
    """Two techniques; `lead` gives log10 second − log10 first for a size and E."""
    rng = rng or np.random.default_rng(0)
    rows = []
    for nth, active in enumerate(sizes):
        for seed in range(seeds):
            models = [("dense", 1, dense)]
            for e in experts:
                first = 4.0 * e**-0.02
                models += [("a", e, first), ("b", e, first * 10 ** lead(nth, e))]
            for router, e, loss in models:
                loss *= active**-0.05 * 10 ** (noise * rng.standard_normal())
                rows.append((f"{router}-{active:g}-{e}-{seed}", router, e, active, seed, loss))
    columns = ["run_id", "router", "experts", "active_params", "seed", "loss_validation"]
    return analyse(RunTable.from_frame(pd.DataFrame(rows, columns=columns), "made"))


def test_the_interval_is_that_of_a_t_test_on_the_means_of_the_sizes() -> None:
    leads = np.array([0.010, 0.004, 0.007])
    ranking = made(lambda nth, e: leads[nth] * (1 + 0.1 * np.log2(e))).pairwise
    pair = ranking.pairs["a", "b"]
    means = leads * (1 + 0.1 * 2)
    test = stats.ttest_1samp(means, 0.0, alternative="greater")
    low, high = stats.ttest_1samp(means, 0.0).confidence_interval(0.9)
    assert (pair.models, pair.wins, pair.sizes, pair.by) == (9, 9, 3, "sizes")
    assert pair.lead == pytest.approx(means.mean())
    assert pair.interval == pytest.approx((low, high), rel=1e-6)
    assert pair.probability == pytest.approx(1 - test.pvalue, rel=1e-6)
    assert pair.verdict == CLEARLY
    assert ranking.order == ["a", "b"]


@pytest.mark.long
def test_equal_techniques_are_rarely_told_apart() -> None:
    """At 90 % one in ten pairs of equals may look different; a few sizes that agree by luck must not make it more."""
    rng = np.random.default_rng(3)
    told = [made(lambda nth, e: 0.0, noise=3e-3, rng=rng).pairwise.pairs for _ in range(25)]
    clear = sum(next(iter(pairs.values())).verdict == CLEARLY for pairs in told)
    assert clear <= 5


def test_seeds_say_what_chance_is() -> None:
    rng = np.random.default_rng(1)
    analysis = made(lambda nth, e: 0.0, seeds=30, noise=2e-3, rng=rng)
    noise = seed_noise(analysis.runs)
    models = 3 * (2 * 3 + 1)  # dense models are counted once, not once for each technique
    assert (noise.kind, noise.freedom) == ("seeds", models * 29)
    assert noise.sd == pytest.approx(2e-3, rel=0.05)
    reach = noise.sd * np.sqrt(2) * stats.t.ppf(0.95, noise.freedom)
    assert stands_out(1.01 * reach, 1, 1, noise, 0.9)
    assert not stands_out(0.99 * reach, 1, 1, noise, 0.9)


def test_one_size_without_seeds_tells_nothing() -> None:
    analysis = made(lambda nth, e: 0.01, sizes=(1e6,))
    ranking = analysis.pairwise
    pair = ranking.pairs["a", "b"]
    assert (pair.interval, pair.probability, pair.verdict) == (None, None, OPEN)
    said = [block for block in comparison_text(analysis) if isinstance(block, Text)]
    assert "nothing here says how much of that is chance" in said[0].text


def test_one_size_with_seeds_tells_by_them() -> None:
    rng = np.random.default_rng(2)
    ranking = made(lambda nth, e: 0.02, sizes=(1e6,), seeds=4, noise=1e-3, rng=rng).pairwise
    pair = ranking.pairs["a", "b"]
    spread = ranking.noise.sd * np.sqrt(3 * (1 / 4 + 1 / 4)) / 3
    assert pair.by == "seeds"
    assert pair.interval[1] - pair.lead == pytest.approx(spread * stats.t.ppf(0.95, ranking.noise.freedom))
    assert pair.verdict == CLEARLY


def test_words_say_who_wins_and_who_cannot_be_told_apart() -> None:
    leads = (0.012, 0.010, 0.011)
    sure = made(lambda nth, e: leads[nth])
    blocks = comparison_text(sure)
    assert blocks[0].text == "a has the lowest loss, and clearly so."
    expected = "a is clearly better than b: lower loss in 9 of the 9 models they share (3 sizes), by 2.6 %"
    assert blocks[1].items[0].startswith(expected)
    torn = made(lambda nth, e: (0.01, -0.012, 0.004)[nth])
    blocks = comparison_text(torn)
    assert blocks[0].text.startswith("These runs cannot tell which technique is best")
    assert any("cannot be told apart from" in item for b in blocks if isinstance(b, Bullets) for item in b.items)


def test_the_grid_of_winners_names_the_lowest_loss_of_each_cell() -> None:
    analysis = made(lambda nth, e: 0.01 if e > 2 else -0.01)
    grid = next(b for b in comparison_text(analysis) if isinstance(b, Grid))
    assert grid.head == ["size", "E = 2", "E = 4", "E = 8"]
    assert [entry.text for entry in grid.rows[0]] == ["1M", "b", "a", "a"]
    assert {entry.under for entry in grid.rows[0][1:]} == {"by 2.3 %"}


def test_gains_are_negative_where_they_are() -> None:
    worse = made(lambda nth, e: 0.01, dense=3.5)
    blocks = gains(worse)
    assert blocks[0].text.startswith("No routed model beats the dense one of its size; nearest is a at 1M with E = 8")
    row = blocks[1].rows[0]
    best = 1 - 4.0 * 8**-0.02 / 3.5
    assert row[2].text == f"−{abs(100 * best):.1f} %"
    mixed = made(lambda nth, e: 0.05, dense=4.0)
    assert "With no number of experts better than dense: b at 1M, b at 4M and b at 16M." in gains(mixed)[0].text


def test_what_was_not_trained_together_is_not_compared() -> None:
    rows = [("d", "dense", 1, 1e6, 4.0), ("x", "a", 2, 1e6, 3.9), ("y", "b", 4, 1e6, 3.8)]
    columns = ["run_id", "router", "experts", "active_params", "loss_validation"]
    analysis = analyse(RunTable.from_frame(pd.DataFrame(rows, columns=columns), "made"))
    pair = analysis.pairwise.pairs["a", "b"]
    assert (pair.models, pair.verdict) == (0, OPEN)
