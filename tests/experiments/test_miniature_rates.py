"""Learning rates: found where the parabola has its lowest point, and carried on by a line."""

from __future__ import annotations

import json
from math import inf, log
from pathlib import Path

import pytest

from experiments.miniature.studies import DATA, RATES, SWEEPS, ended_in, recorded_in, specs_of
from experiments.miniature.train.rates import OTHERS, best_rate, chosen, losses_of, rendered, write_chosen
from routelaw.files import read_toml
from routelaw.runs.store import Store
from routelaw.specs.counting import dense_params
from routelaw.specs.files import to_mapping
from routelaw.specs.sizes import get_size

TRIED = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)


def valley(lowest: float) -> dict[float, float]:
    return {rate: 4 + 0.1 * log(rate / lowest) ** 2 for rate in TRIED}


def test_the_lowest_point_of_a_parabola() -> None:
    assert best_rate(valley(3e-3)) == (pytest.approx(3e-3), True)
    assert best_rate(valley(1e-4)) == (1e-3, False)
    assert best_rate({**valley(6e-3), 1.6e-2: inf}) == (8e-3, True), "no parabola through a diverged run"
    assert best_rate({**valley(1.5e-2), 1.6e-2: inf}) == (8e-3, True)


def test_a_power_of_n_is_carried_on_to_the_other_sizes() -> None:
    def rate(size: str) -> float:
        return 0.005 * (dense_params(get_size(size)) / 1e6) ** -0.4

    rates, at_edge = chosen({size: valley(rate(size)) for size in ("8M", "3M", "0.8M")})
    assert list(rates) == ["0.8M", "2M", "3M", "8M", "20M"]
    assert rates == {size: pytest.approx(rate(size), rel=0.05) for size in rates}
    assert at_edge == []
    assert chosen({"0.8M": valley(4e-3), "3M": valley(1e-5)})[1] == ["3M"]


def test_the_file_that_is_written_has_the_form_of_the_one_that_is_there(tmp_path: Path) -> None:
    rates = {"0.8M": 0.008, "2M": 0.006, "3M": 0.004, "8M": 0.003, "20M": 0.002}
    (tmp_path / "chosen_rates.toml").write_text(rendered(rates, "for a test."))
    written, there = (read_toml(folder / "chosen_rates.toml") for folder in (tmp_path, SWEEPS))
    assert written["train"]["learning_rate"] == rates["2M"]
    assert [rule["set"]["train"]["learning_rate"] for rule in written["where"]] == list(rates.values())
    assert written["base"] == there["base"]
    assert [rule["model"]["size"] for rule in written["where"]] == [rule["model"]["size"] for rule in there["where"]]
    assert set(OTHERS) < set(rates)


def test_nothing_is_chosen_before_all_have_ended(tmp_path: Path) -> None:
    assert losses_of(ended_in(Store(tmp_path))) == {}


def test_the_runs_of_a_store_choose_the_rates(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for spec in specs_of(RATES, "c", 8192):
        folder = store.path / spec.run_id
        folder.mkdir(parents=True)
        loss = 4 + log(spec.train.learning_rate / 3e-3) ** 2
        (folder / "spec.json").write_text(json.dumps({"run_id": spec.run_id, "spec": to_mapping(spec)}))
        (folder / "result.json").write_text(json.dumps({"status": "finished", "loss_validation": loss}))
        (folder / "evaluations.jsonl").touch()
    assert write_chosen(ended_in(store), tmp_path / "chosen_rates.toml") == [
        "0.8M: 0.003", "2M: 0.003 (by the line)", "3M: 0.003", "8M: 0.003", "20M: 0.003 (by the line)",
    ]  # fmt: skip
    for name in ("recipe.toml", "chosen.toml", "main.toml"):
        (tmp_path / name).write_bytes((SWEEPS / name).read_bytes())
    assert {spec.train.learning_rate for spec in specs_of("main", "c", 8192, tmp_path)} == {3e-3}
    (store.path / spec.run_id / "result.json").unlink()
    assert losses_of(ended_in(store)) == {}


def test_the_committed_rates_are_those_of_the_committed_runs(tmp_path: Path) -> None:
    assert write_chosen(recorded_in(DATA), tmp_path / "chosen_rates.toml")
    assert (tmp_path / "chosen_rates.toml").read_bytes() == (SWEEPS / "chosen_rates.toml").read_bytes()
