"""Public tables as they are downloaded: recognised by their headers, and told in the units of run tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from routelaw.errors import InputError
from routelaw.fitting.lengths import several_lengths
from routelaw.fitting.points import select_points
from routelaw.runs.clark2022 import is_release
from routelaw.runs.files import read_runs
from routelaw.runs.filters import best_of
from routelaw.runs.public import public_tables, recognised

TABLES = Path(__file__).parents[3] / ".." / "shared" / "data" / "tables"
FILES = {
    "chinchilla": ("epoch_chinchilla_svg.csv", 245),
    "step-law": ("steplaw_moe_lr_bs_loss.csv", 708),
    "misfitting": ("misfitting_spm.csv", 70),
    "gemstones": ("gemstones_cool_end.jsonl", 199),
    "marin": ("marin_moe_isoflop_transcribed.csv", 15),
    "flame": ("flame_moe_visible10of80.csv", 10),
}
every_file = pytest.mark.parametrize("name", FILES)


def file_of(name: str) -> Path:
    path = TABLES / FILES[name][0]
    if not path.is_file():
        pytest.skip(f"{path.name} is not beside the repository (shared/data/tables)")
    return path


@every_file
def test_each_is_read_with_what_was_assumed(name: str) -> None:
    table = read_runs(file_of(name))
    assert len(table.frame) == FILES[name][1]
    assert f"read as {public_tables()[name].title}" in table.notes
    assert set(public_tables()[name].assumed) <= set(table.notes)


@every_file
def test_no_length_is_averaged_away(name: str) -> None:
    """Each table has several lengths: a fit gets one point for every run that differs in more than its seed."""
    table = read_runs(file_of(name))
    assert several_lengths(table)
    router = table.routers[0]
    points = select_points(table, router, target=table.losses[0], mixed=True, every_length=True)
    assert len(points) == len(table.frame)
    ours = sorted(zip(points.x["active_params"], points.x["tokens"], points.loss, strict=True))
    frame = table.frame
    theirs = sorted(zip(frame["active_params"], frame["tokens"].astype(float), frame[table.losses[0]], strict=True))
    assert np.allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("name", [n for n, table in public_tables().items() if table.sha256])
def test_hashes_are_those_of_the_files(name: str) -> None:
    import hashlib

    assert hashlib.sha256(file_of(name).read_bytes()).hexdigest() == public_tables()[name].sha256


def test_cells_of_a_search_are_found() -> None:
    table = best_of(read_runs(file_of("step-law")), ["learning_rate", "batch_tokens"], "loss_validation")
    assert table.frame.groupby(["size", "tokens"]).size().tolist() == [1] * 16
    raw = pd.read_csv(file_of("step-law"))
    expected = raw.groupby(["moe_name", "D"])["smooth loss"].min()
    ours = table.frame.set_index(["size", "tokens"])["loss_validation"]
    assert ours.sort_index().tolist() == expected.sort_index().tolist()
    assert len(best_of(read_runs(file_of("misfitting")), ["learning_rate"], "loss_c4").frame) == 14


def chinchilla_frame(**changed: list[float]) -> pd.DataFrame:
    columns = {"Model Size": [1e8, 2e8], "Training FLOP": [6e18, 2.4e19], "loss": [3.0, 2.8]}
    return pd.DataFrame(columns | changed)


def written(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_csv(path, index=False)
    return path


def test_tokens_follow_from_compute(tmp_path: Path) -> None:
    table = read_runs(written(chinchilla_frame(), tmp_path / "t.csv"))
    assert table.frame["tokens"].tolist() == [10**10, 2 * 10**10]
    assert table.frame["active_params"].tolist() == [1e8, 2e8]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"Model Size": [0.0, 1e8]}, "Model Size"),
        ({"Training FLOP": [float("nan"), 1e19]}, "Training FLOP"),
        ({"loss": [-1.0, 2.0]}, "loss_validation"),
    ],
)
def test_what_is_wrong_names_its_column(changed: dict, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read_runs(written(chinchilla_frame(**changed), tmp_path / "t.csv"))


def test_no_header_is_of_two_tables() -> None:
    for name, table in public_tables().items():
        assert recognised(table.header) == table, name
        assert not is_release(table.header)
        assert recognised(["run_id", *table.header]) is None


def test_anybodys_columns_are_not_taken_for_a_public_table(tmp_path: Path) -> None:
    frame = pd.DataFrame({"flops": [1e18], "active_params": [1e8], "total_params": [2e8], "loss": [3.0], "lr": [1e-3]})
    with pytest.raises(InputError, match="run_id"):
        read_runs(written(frame, tmp_path / "t.csv"))


def test_json_lines(tmp_path: Path) -> None:
    rows = [
        {"run_id": f"r{i}", "router": "hash", "experts": 4, "active_params": 1e7 * (i + 1), "loss_validation": 3.0}
        for i in range(3)
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    assert read_runs(path).frame["run_id"].tolist() == ["r0", "r1", "r2"]
    path.write_text(json.dumps(rows[0]) + "\n{broken\n")
    with pytest.raises(InputError, match="line 2 is not a JSON object"):
        read_runs(path)
    path.write_text(json.dumps(rows[0] | {"experts": [4]}) + "\n")
    with pytest.raises(InputError, match="line 1 is not a flat JSON object"):
        read_runs(path)
