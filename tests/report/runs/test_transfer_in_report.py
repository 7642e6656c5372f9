"""The section on transfer: there with several losses, gone with one; its numbers are those of its tables."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_store import STEPS, grid, true_loss, write_store

from routelaw.report.runs.report import write_report
from routelaw.runs.text_results import add_results
from routelaw.specs.run import RunSpec


def evaluate(store: Path, name: str, loss: Callable[[RunSpec], float], **options: object) -> None:
    for spec in grid():
        options = {"metric": "text", "text": "0" * 64, "options": {"stride": None}, **options}
        row = {"run_id": spec.run_id, "step": STEPS, "name": name, "nats_per_token": loss(spec), "bits_per_byte": 1.0}
        add_results(store / spec.run_id, [{**row, **options}])


def read(page: Path) -> str:
    return (page / "index.html").read_text()


def test_each_corpus_has_its_coefficients_and_effective_sizes(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", grid(), noise=1e-4)
    write_report(store, tmp_path / "one")
    assert 'id="transfer"' not in read(tmp_path / "one")
    assert not (tmp_path / "one" / "tables" / "transfer_effective.csv").exists()
    evaluate(store, "mine", lambda spec: true_loss(spec) * 1.2)
    evaluate(store, "steep", lambda spec: true_loss(spec) / spec.counts.active_params**0.05)
    write_report(store, tmp_path / "three", law="bilinear")
    page = read(tmp_path / "three")
    for part in ('id="transfer"', "HASH: coefficients and slopes", "S-BASE: effective parameters", "mine", "steep"):
        assert part in page
    found = pd.read_csv(tmp_path / "three" / "tables" / "transfer_coefficients.csv")
    values = found.set_index(["technique", "target", "quantity"])["value"]
    for technique in ("hash", "s-base"):
        own = values[technique]
        for name in "abc":  # a loss larger by a factor scales as before
            assert own["loss_mine", name] == pytest.approx(own["loss_validation", name], abs=2e-3)
        assert own["loss_steep", "a"] == pytest.approx(own["loss_validation", "a"] - 0.05, abs=2e-3)
        assert own["loss_steep", "d"] == pytest.approx(own["loss_validation", "d"], abs=1e-2)
    effective = pd.read_csv(tmp_path / "three" / "tables" / "transfer_effective.csv")
    assert len(effective) == 2 * 3 * 9
    row = effective[(effective["target"] == "loss_steep") & (effective["technique"] == "hash")].iloc[-1]
    a, b, c = (values["hash", "loss_steep", name] for name in "abc")
    u, v = np.log10(row["active_params"]), math.log10(row["experts"])
    assert row["effective_params"] == pytest.approx(10 ** (u + (b * v + c * u * v) / a), rel=1e-6)
    assert row["low"] <= row["effective_params"] <= row["high"]


def test_a_name_of_two_measurements_is_said(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", grid())
    evaluate(store, "mine", true_loss)
    first = grid()[0]
    row = {"run_id": first.run_id, "step": STEPS, "name": "mine", "nats_per_token": 1.0, "text": "1" * 64}
    add_results(store / first.run_id, [{**row, "metric": "text", "options": {"stride": None}}])
    write_report(store, tmp_path / "page", target="loss_mine")
    assert "loss_mine was measured in 2 ways" in read(tmp_path / "page")
