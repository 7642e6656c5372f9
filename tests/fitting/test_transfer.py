"""Transfer: one law on each corpus, against least squares written out and the closed form of N̄."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from routelaw.errors import InputError
from routelaw.fitting.transfer import fit_transfer
from routelaw.laws import get_law
from routelaw.runs.table import RunTable

SIZES, EXPERTS = (10e6, 40e6, 200e6, 1e9), (1, 2, 8, 32)
LAWS = {"loss_validation": (-0.08, -0.1, 0.008, 1.1), "loss_c4": (-0.06, -0.05, 0.004, 1.0)}


def make_table(laws: dict[str, tuple[float, ...]] = LAWS, noise: float = 1e-3) -> RunTable:
    draw, rows = np.random.default_rng(0), []
    for n in SIZES:
        for e in EXPERTS:
            row = {"run_id": f"{n:g}-{e}", "router": "hash" if e > 1 else "dense", "experts": e, "active_params": n}
            u, v = np.log10(n), np.log10(e)
            for loss, (a, b, c, d) in laws.items():
                row[loss] = 10 ** (a * u + b * v + c * u * v + d + noise * draw.standard_normal())
            rows.append(row)
    return RunTable.from_frame(pd.DataFrame(rows), "drawn")


@pytest.mark.parametrize("include_dense", [True, False])
def test_each_corpus_has_a_fit_of_its_own(include_dense: bool) -> None:
    table = make_table()
    found = fit_transfer({"hash": table}, get_law("bilinear"), table.losses, include_dense=include_dense, draws=50)
    assert found.refusals == {}
    frame = table.frame if include_dense else table.frame[table.frame["experts"] > 1]
    u, v = np.log10(frame["active_params"]), np.log10(frame["experts"])
    basis = np.stack([u, v, u * v, np.ones(len(u))], axis=1)
    for target, fit in found.of("hash").items():
        a, b, c, _ = solution = np.linalg.lstsq(basis, np.log10(frame[target]), rcond=None)[0]
        np.testing.assert_allclose([fit.fit.params[name] for name in "abcd"], solution, rtol=1e-4)
        assert fit.size_slopes == pytest.approx({e: a + c * np.log10(e) for e in EXPERTS if include_dense or e > 1})
        assert list(fit.expert_slopes.values()) == pytest.approx([b + c * np.log10(n) for n in SIZES])
        assert len(fit.effective) == 12
        assert {each.extrapolated for each in fit.effective} == {True, False}
        for each in fit.effective:
            n, e = np.log10(each.active_params), np.log10(each.experts)
            assert each.effective == pytest.approx(10 ** ((a * n + b * e + c * n * e) / a))
            assert each.ratio == pytest.approx(each.effective / each.active_params)
            assert each.extrapolated == (each.effective > max(SIZES))
            assert each.interval is not None
            assert each.interval.low <= each.effective <= each.interval.high
        assert fit.intervals["a"].low <= a <= fit.intervals["a"].high


def test_no_dense_size_where_larger_is_no_better() -> None:
    """A loss that grows with size would make every routed model worth less than it is."""
    table = make_table({"loss_validation": LAWS["loss_validation"], "loss_odd": (0.05, -0.1, 0.0, 0.5)})
    found = fit_transfer({"hash": table}, get_law("bilinear"), table.losses, draws=0).of("hash")
    assert all(np.isnan(each.effective) for each in found["loss_odd"].effective)
    assert not any(np.isnan(each.effective) for each in found["loss_validation"].effective)
    assert found["loss_odd"].intervals == {}


def test_what_cannot_be_fitted_is_said() -> None:
    table = make_table()
    frame = table.frame.assign(loss_few=table.frame["loss_c4"].where(table.frame["active_params"] == 10e6))
    few = RunTable.from_frame(frame, "drawn")
    found = fit_transfer({"hash": few}, get_law("bilinear"), few.losses, draws=0)
    assert list(found.of("hash")) == ["loss_validation", "loss_c4"]
    assert "one model size only" in found.refusals["hash", "loss_few"]
    with pytest.raises(InputError, match="is not a law in"):
        fit_transfer({"hash": table}, get_law("dense"), table.losses)
