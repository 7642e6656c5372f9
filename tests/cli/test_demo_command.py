"""`routelaw demo`, with a sweep of seconds in place of its own: what lies there already is used."""

from pathlib import Path

import pytest
from tiny_runs import build

SWEEP = """
corpus = "corpus"
[model]
sequence_length = 16
[train]
steps = 12
batch = 8
learning_rate = 1e-2
[execution]
device = "cpu"
threads = 1
evaluate_every = 6
evaluate_tokens = 512
log_every = 3
[[grid]]
model.d_model = [16, 24, 32]
model.blocks = 2
model.heads = 2
model.kv_size = 8
router.name = ["dense", "switch", "hash"]
router.experts = [2, 4]
"""


@pytest.mark.long
def test_from_text_to_a_page_and_again_in_no_time(command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    build(out)
    (out / "sweep.toml").write_text(SWEEP)
    code, told, err = command("demo", "--out", out, "--jobs", "2")
    assert code == 0, err
    assert "[15/15]" in err, "progress all along"
    assert "Validation loss" in told
    assert "3. The law (" in told
    assert "4. Learned: " in told
    assert told.count("your own") == 3
    assert (out / "report" / "index.html").is_file()
    trained = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("*/result.json")}
    assert len(trained) == 15
    code, again, err = command("demo", "--out", out, "--jobs", "2")
    assert (code, again) == (0, told), err
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").glob("*/result.json")} == trained


def test_the_demo_s_own_sweep() -> None:
    """Three sizes, dense and three routers, three E: what the README promises."""
    from types import SimpleNamespace

    from routelaw.cli import demo
    from routelaw.sweeps.sweep import read_sweep

    opened = SimpleNamespace(vocabulary=512, id="0" * 64)
    sweep = read_sweep(Path(demo.__file__).with_name("demo.toml"), opened=lambda _: opened)
    assert len(sweep.runs) == 30
    assert {run.spec.router.name for run in sweep.runs} == {"dense", "s-base", "switch", "hash"}
    assert len({run.spec.counts.active_params for run in sweep.runs}) == 3
    even = {run.spec.variant for run in sweep.runs if run.spec.router.name == "s-base"}
    assert even == {"relative_temperature,temperature=0.05"}, "docs/log/2026-11-19-s-base-rebalancing.md"
