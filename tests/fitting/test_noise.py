"""The spread of seeds, pooled: right on average, with intervals that cover."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from routelaw.fitting.noise import NoiseFloor, mean_noise, noise_floor
from routelaw.runs.table import RunTable

SD = 1e-3


def seeds_table(rng: np.random.Generator, models: int = 5, seeds: int = 3, status: str = "finished") -> RunTable:
    rows = [
        {"run_id": f"{m}-{s}", "router": "hash", "experts": 2 + m, "active_params": 1e6, "seed": s, "step": 10,
         "loss_validation": 3.0 * 10 ** (SD * rng.standard_normal()), "status": status}
        for m in range(models)
        for s in range(seeds)
    ]  # fmt: skip
    return RunTable.from_frame(pd.DataFrame(rows), "seeds")


def test_pooled_over_models() -> None:
    rng = np.random.default_rng(0)
    floors = [noise_floor(seeds_table(rng)) for _ in range(60)]
    assert all(f is not None and f.freedom == 10 and f.models == 5 for f in floors)
    assert np.sqrt(np.mean([f.sd**2 for f in floors if f])) == pytest.approx(SD, rel=0.1)
    assert 0.8 <= np.mean([f.low <= SD <= f.high for f in floors if f]) < 1
    assert floors[0] is not None
    assert floors[0].nats == pytest.approx(floors[0].sd * 3 * np.log(10), rel=0.01)


def test_of_one_seed_each_nothing_is_known() -> None:
    assert noise_floor(seeds_table(np.random.default_rng(0), seeds=1)) is None


def test_runs_that_did_not_finish_do_not_count() -> None:
    assert noise_floor(seeds_table(np.random.default_rng(0), status="stopped")) is None


def test_lengths_are_not_mixed() -> None:
    table = seeds_table(np.random.default_rng(0), models=1, seeds=2)
    apart = table.frame.assign(tokens_planned=[100, 200])
    assert noise_floor(RunTable.from_frame(apart, "apart")) is None


def test_a_diverged_seed_is_left_out() -> None:
    table = seeds_table(np.random.default_rng(0), models=1)
    status = ["finished", "finished", "diverged"]
    floor = noise_floor(RunTable.from_frame(table.frame.assign(status=status), "diverged"))
    assert floor is not None
    assert floor.freedom == 1


def test_a_run_is_what_its_last_row_says() -> None:
    """Rows before it say `running`, and may have the last value of a loss that is not measured every time."""
    end = seeds_table(np.random.default_rng(0), models=1).frame
    before = end.assign(step=5, status="running")
    whole = noise_floor(RunTable.from_frame(pd.concat([before, end.assign(loss_validation=np.nan)]), "earlier"))
    lost = noise_floor(RunTable.from_frame(pd.concat([before, end.assign(status="diverged")]), "lost"))
    assert whole == noise_floor(RunTable.from_frame(end, "end"))
    assert lost is None


def floor(sd: float, freedom: float) -> NoiseFloor:
    return NoiseFloor(sd=sd, freedom=freedom, low=0.0, high=0.0, models=3, widest=0.1 * sd, loss=3.0)


def test_a_mean_of_one_floor_is_that_floor() -> None:
    own = noise_floor(seeds_table(np.random.default_rng(0)))
    assert own is not None
    for times in (1, 3):
        same = mean_noise([own] * times)
        assert (same.sd, same.freedom, same.low, same.high) == pytest.approx((own.sd, own.freedom, own.low, own.high))
        assert (same.models, same.widest, same.loss) == (own.models, own.widest, pytest.approx(own.loss))


def test_variances_are_averaged_and_known_as_well_as_welch_says() -> None:
    """Welch's test of two samples has the degrees of freedom that SciPy gives it."""
    rng = np.random.default_rng(1)
    one, other = rng.normal(0, 1, 7), rng.normal(0, 5, 7)
    both = mean_noise([floor(float(s.std(ddof=1)), 6) for s in (one, other)])
    assert both.sd == pytest.approx(np.sqrt((one.var(ddof=1) + other.var(ddof=1)) / 2))
    assert both.freedom == pytest.approx(stats.ttest_ind(one, other, equal_var=False).df)
    assert mean_noise([floor(1.0, 8), floor(1.0, 9)]).freedom == pytest.approx(4 / (1 / 8 + 1 / 9))
    assert mean_noise([floor(0.0, 8), floor(0.0, 9)]).sd == 0.0


def test_a_floor_that_stands_for_two_counts_twice_and_is_known_once() -> None:
    near, far = floor(1.0, 10), floor(3.0, 20)
    mixed = mean_noise([near, far, far])
    assert mixed.sd**2 == pytest.approx((1 + 2 * 9) / 3)
    assert mixed.freedom == pytest.approx(19**2 / (1 / 10 + 18**2 / 20))
    assert mixed.models == 6


def test_weights_are_those_of_variances() -> None:
    """A mean of two runs of the one and of a single run of the other has a variance of σ²/2 and σ²."""
    near, far = floor(1.0, 10), floor(3.0, 20)
    mixed = mean_noise([near, far], [0.5, 1.0])
    assert mixed.sd**2 * 1.5 == pytest.approx(0.5 * 1 + 1.0 * 9)
    assert mean_noise([near, far, far], [1, 1, 1]) == mean_noise([near, far, far])


def test_its_interval_covers_where_sizes_differ() -> None:
    rng = np.random.default_rng(2)
    true = np.sqrt((1 + 16) / 2)
    drawn = [
        mean_noise([floor(sd * float(np.sqrt(rng.chisquare(10) / 10)), 10) for sd in (1.0, 4.0)]) for _ in range(400)
    ]
    assert 0.85 <= np.mean([n.low <= true <= n.high for n in drawn]) <= 0.95
