"""Runs as the report shows them: rows, training curves, heat maps of expert load."""

import json
from pathlib import Path

import numpy as np
import pytest
from synthetic_store import LENGTH, Ending, grid, make_spec, true_loss, write_store

from routelaw.report.runs.data import ReportData, RunRow, read_report_data, rows_of
from routelaw.report.runs.tables import run_table_data, runs_frame
from routelaw.report.runs.training import (
    MOST_BINS,
    MOST_POINTS,
    curve_data,
    evenly,
    heat_map_data,
    run_maps,
    sampled_log,
)


def read(store: Path) -> ReportData:
    return read_report_data(store)[0]


def logs_of(report_data: ReportData) -> dict[str, list[dict]]:
    return {row.run_id: sampled_log(row.folder / "log.jsonl") for row in rows_of(report_data)}


def test_rows_say_what_folders_say(tmp_path: Path) -> None:
    specs = [make_spec("0.2M", "s-base", 8, k=2), make_spec("0.2M"), make_spec("0.5M", "hash", 4)]
    endings = {specs[2].run_id: Ending("failed", "no disk")}
    report_data = read(write_store(tmp_path / "store", specs, endings=endings, noise=0))
    rows = {row.run_id: row for row in rows_of(report_data)}
    routed, dense, failed = (rows[spec.run_id] for spec in specs)
    counts = specs[0].counts
    assert (routed.active_params, routed.total_params) == (counts.active_params, counts.total_params)
    assert routed.flops_per_token == counts.flops_per_token
    assert routed.losses["loss_validation"] == pytest.approx(true_loss(specs[0]))
    assert routed.label == "S-BASE 0.2M, E = 8, K = 2"
    assert (dense.label, dense.dropped) == ("Dense 0.2M", None)
    assert routed.dropped == pytest.approx(0.2 / np.sqrt(1000))
    assert (failed.status, failed.reason) == ("failed", "no disk")
    assert failed.seconds == pytest.approx(50.0), "from its log"
    assert len(runs_frame(list(rows.values()))) == 3


def test_the_run_table_has_the_columns_that_say_something(tmp_path: Path) -> None:
    rows = rows_of(read(write_store(tmp_path / "store", grid(sizes=("0.5M", "0.2M")))))
    data = run_table_data(rows, "loss_validation")
    names = [column["name"] for column in data["columns"]]
    assert "variant" not in names
    assert "source" not in names
    assert names.index("status") < names.index("loss_validation") < names.index("active_params")
    assert data["order"]["size"] == ["0.2M", "0.5M"]
    assert data["filters"] == ["router", "size", "status"]
    dense = next(row for row in data["rows"] if row[names.index("router")] == "dense")
    assert dense[names.index("k")] is None
    json.dumps(data, allow_nan=False)


def test_a_curve_is_the_evaluations_of_its_run_thinned(tmp_path: Path) -> None:
    spec = make_spec("0.2M", "s-base", 4)
    report_data = read(write_store(tmp_path / "store", [spec], evaluations=400, logged=400, noise=0))
    rows = rows_of(report_data)
    data = curve_data(rows, report_data.table, "loss_validation", logs_of(report_data), {}, {})
    curve = data["curves"][0]
    tokens, losses = curve["validation"]
    assert len(tokens) == MOST_POINTS
    assert tokens[-1] == 1000 * spec.train.batch * LENGTH
    expected = [true_loss(spec) * (1000 * spec.train.batch * LENGTH / t) ** 0.1 for t in tokens]
    assert losses == pytest.approx(expected, rel=1e-4)
    assert len(curve["training"][0]) == MOST_POINTS // 2
    assert data["abscissa"] == "tokens"


def test_a_heat_map_averages_the_log_over_its_bins(tmp_path: Path) -> None:
    spec = make_spec("0.2M", "s-base", 8)
    store = write_store(tmp_path / "store", [spec], logged=200)
    log = [json.loads(line) for line in (store / spec.run_id / "log.jsonl").read_text().splitlines()]
    maps = run_maps(log)
    assert [layer["block"] for layer in maps["layers"]] == list(spec.routed_blocks)
    assert len(maps["steps"]) == MOST_BINS
    bins = np.array_split(np.arange(len(log)), MOST_BINS)
    assert maps["steps"] == [log[own[-1]]["step"] for own in bins]
    for place, layer in enumerate(maps["layers"]):
        assert np.shape(layer["load"]) == (8, MOST_BINS)
        for nth, own in enumerate(bins):
            mean = np.mean([log[i]["layers"][place]["load"] for i in own], axis=0)
            np.testing.assert_allclose([line[nth] for line in layer["load"]], 800 * mean, atol=0.51)
            drops = np.mean([log[i]["layers"][place]["dropped"] for i in own])
            assert layer["dropped"][nth] == pytest.approx(drops, rel=1e-3)
        assert np.sum(layer["load"], axis=0) == pytest.approx(np.full(MOST_BINS, 800), abs=4)


def test_a_budget_shows_every_router_and_size_before_repeating_one(tmp_path: Path) -> None:
    report_data = read(write_store(tmp_path / "store", grid(experts=(2, 4, 8)), logged=10))
    rows, logs = rows_of(report_data), logs_of(report_data)
    everything = heat_map_data(rows, logs)
    assert (len(everything.data["runs"]), everything.left_out) == (18, 0)
    first = everything.data["runs"][everything.data["first"]]
    assert first["label"].endswith("0.8M, E = 8")
    largest = 6 * 8 * 2 * 10  # three sizes of two routers with E = 8, two layers, ten bins
    some = heat_map_data(rows, logs, budget=largest)
    shown = {run["label"] for run in some.data["runs"]}
    assert shown == {f"{r} {s}, E = 8" for r in ("S-BASE", "HASH") for s in ("0.2M", "0.5M", "0.8M")}
    assert some.left_out == 12


def test_logs_of_any_length_and_state(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    assert sampled_log(file) == []
    lines = [json.dumps({"step": i}) for i in range(1000)]
    file.write_text("\n".join([*lines, '{"step": 10']))
    rows = sampled_log(file, 50)
    assert (len(rows), rows[0]["step"], rows[-1]["step"]) == (50, 0, 999)
    lines[999] = "damaged"
    file.write_text("\n".join(lines) + "\n")
    assert len(sampled_log(file, 50)) == 49
    assert evenly(3, 50) == [0, 1, 2]


def test_layers_that_changed_or_lack_numbers_are_not_drawn() -> None:
    whole = {"step": 1, "layers": [{"block": 2, "load": [0.5, 0.5], "dropped": 0.0}]}
    changed = {"step": 2, "layers": [{"block": 2, "load": [0.2, 0.3, 0.5], "dropped": 0.0}]}
    lacking = {"step": 2, "layers": [{"block": 2, "load": [None, 0.5], "dropped": None}]}
    rows = [RunRow(name, "own", experts=2) for name in ("good", "changed", "lacking", "dense")]
    logs = {"good": [whole, whole], "changed": [whole, changed], "lacking": [whole, lacking], "dense": [{"step": 1}]}
    assert [run["run"] for run in heat_map_data(rows, logs).data["runs"]] == ["good"]
