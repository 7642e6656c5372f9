"""Study files of the paper as a user tries them: in miniature, cut to the smallest sizes, trained for 20 steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_runs import build

EXPERIMENTS = Path(__file__).parents[3] / "experiments" / "paper"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    build(folder)
    for path in EXPERIMENTS.glob("*.toml"):
        text = path.read_text("utf-8").replace('base = "paper.toml"', 'base = "miniature.toml"')
        (folder / path.name).write_text(text)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("file", ["lengths", "permuted_hash", "shared_decisions"])
def test_sweep_and_report(command, place: Path, tmp_path: Path, file: str) -> None:
    settings = ("train.steps=20", "train.batch=8", "execution.evaluate_tokens=1536")
    sets = [word for setting in settings for word in ("--set", setting)]
    corpus = ("--corpus", place / "corpus")
    code, said, err = command(
        "sweep", place / f"{file}.toml", *corpus, "--smallest", 2, *sets, "--store", tmp_path / "store", "--json"
    )
    assert code == 0, err
    ended = json.loads(said)
    assert ended["ended"] == ended["runs"] > 0
    code, said, err = command("report", tmp_path / "store", "--out", tmp_path / "out", "--json")
    assert (code, err) == (0, "")
    (study,) = json.loads(said)["sources"]["own"]["studies"]
    assert study["figures"], study["not_drawn"]
    assert {claim["verdict"] for claim in study["claims"]} <= {"holds", "does not hold", "cannot tell"}
    assert any("Trained too briefly" in note for note in study["notes"])
