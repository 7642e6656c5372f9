"""A machine whose fast path for bfloat16 ends the process: simulated by a child that ends itself with SIGILL."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from routelaw.kernels import cpu_bfloat16
from routelaw.kernels.cpu_bfloat16 import LIMITS, NATIVE, OFF, OWN_VALUE, SIMULATE, VARIABLE, Found

PROGRAM = """
import sys
if "{before}":
    import torch
    torch.ones(8, 8) @ torch.ones(8, 8)
from routelaw.kernels.cpu_bfloat16 import make_safe
make_safe(lambda sentence: print("NOTE", sentence))
make_safe(lambda sentence: print("NOTE", sentence))
import os, torch
x = torch.ones(64, 64, dtype=torch.bfloat16)
assert float((x @ x)[0, 0]) == 64
print("limit", os.environ.get("ONEDNN_MAX_CPU_ISA", "none"), "onednn", torch._C._get_mkldnn_enabled())
"""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROUTELAW_CACHE", str(tmp_path / "cache"))
    for name in (VARIABLE, OWN_VALUE):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def run(dies: str = "", before: str = "", **variables: str) -> str:
    environment = {**os.environ, SIMULATE: dies, **variables}
    program = PROGRAM.format(before=before)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_sound_machine_is_left_as_it_is(own_cache: Path) -> None:
    if cpu_bfloat16.find_out()[0].limit != NATIVE:
        pytest.skip("this machine's own fast path does not work")
    assert run() == "limit none onednn True\n"
    assert [entry["limit"] for entry in json.loads((own_cache / "cpu_bfloat16.json").read_text()).values()] == [NATIVE]


def test_the_next_slower_way_is_taken_said_once_and_remembered(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = run(dies=NATIVE)
    assert out.count("NOTE") == 1
    assert "ended by SIGILL" in out
    assert out.endswith(f"limit {LIMITS[1]} onednn True\n")
    # A second process must not try again: were it to, it would find nothing to run.
    monkeypatch.setattr(cpu_bfloat16, "CHILD", "raise SystemExit(1)")
    monkeypatch.setenv(SIMULATE, NATIVE)
    assert cpu_bfloat16.remembered() == Found(LIMITS[1], "a trial was ended by SIGILL")
    monkeypatch.setenv(VARIABLE, LIMITS[1])  # as a process started by one of ours finds it
    monkeypatch.setenv(OWN_VALUE, "")
    assert cpu_bfloat16.remembered() == Found(LIMITS[1], "a trial was ended by SIGILL")


def test_without_any_way_onednn_is_left_out(own_cache: Path) -> None:
    out = run(dies=",".join(LIMITS))
    assert "oneDNN is left out" in out
    assert out.endswith("limit none onednn False\n")


def test_a_process_that_used_onednn_before_finds_out_in_a_copy_of_itself(own_cache: Path) -> None:
    """The limit comes too late there; the copy finds that products work all the same on this machine, or that not."""
    out = run(dies=NATIVE, before="float32")
    assert f"limit {LIMITS[1]}" in out
    assert out.count("NOTE") == 1


def test_a_copy_in_which_products_fail_leaves_onednn_out(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(cpu_bfloat16, "PRODUCTS", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    said: list[str] = []
    try:
        cpu_bfloat16.apply(Found(LIMITS[1], "a trial was ended by SIGILL"), said.append)
        assert not torch._C._get_mkldnn_enabled()
        assert "in use before" in said[0]
    finally:
        torch._C._set_mkldnn_enabled(True)


@pytest.mark.parametrize(
    ("child", "limit", "cause"),
    [
        ("import sys; sys.exit('no torch here')", OFF, "no torch here"),
        ("import time; time.sleep(60)", OFF, "took more than"),
    ],
)
def test_a_trial_that_fails_for_another_reason_is_not_remembered(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, child: str, limit: str, cause: str
) -> None:
    monkeypatch.setattr(cpu_bfloat16, "CHILD", child)
    monkeypatch.setattr(cpu_bfloat16, "CHILD_SECONDS", 1.0)
    monkeypatch.setattr(cpu_bfloat16, "_settled", False)
    monkeypatch.setattr(cpu_bfloat16, "apply", lambda found, _: applied.append(found))
    applied: list[Found] = []
    cpu_bfloat16.make_safe()
    assert applied[0].limit == limit
    assert cause in applied[0].cause
    assert not own_cache.exists()


@pytest.mark.parametrize("content", ["", "[]", '{"KEY": {"limit": "rm -rf"}}', '{"KEY": 3}', '{"KEY": {"other": 1}}'])
def test_a_damaged_memory_is_no_memory(own_cache: Path, content: str) -> None:
    own_cache.mkdir()
    (own_cache / "cpu_bfloat16.json").write_text(content.replace("KEY", cpu_bfloat16._machine()))
    assert cpu_bfloat16.remembered() is None


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(own_cache: Path) -> None:
    own_cache.write_text("a file where the folder would be")
    cpu_bfloat16._remember(Found(NATIVE))
