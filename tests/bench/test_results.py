"""A limit of time that holds in the midst of work and leaves what was found, and the line of a measurement."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from routelaw.bench import results
from routelaw.bench.results import Environment, Failure, ResultsFile, Row, Table, kept, row, time_limit, tree
from routelaw.errors import InputError


def test_work_ends_in_its_midst(capsys: pytest.CaptureFixture[str]) -> None:
    found, begun = [], time.monotonic()
    with time_limit(0.05):
        found.append("first")
        try:
            time.sleep(30)
        except Exception:
            pytest.fail("whoever catches errors to go on must not catch this")
        found.append("second")
    assert found == ["first"]
    assert time.monotonic() - begun < 29
    assert "stopped: nothing more is measured" in capsys.readouterr().err


def test_rows_are_kept_when_the_process_is_asked_to_stop(capsys: pytest.CaptureFixture[str]) -> None:
    def rows() -> Iterator[Row]:
        yield row("first", {"ms": 1.0})
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
        yield row("second", {"ms": 2.0})

    begun = time.monotonic()
    assert [found.name for found in kept(rows())] == ["first"]
    assert time.monotonic() - begun < 29
    assert "first: ms 1" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_raised_in_a_destructor_is_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "INTERRUPT_AGAIN_S", 0.05)

    class Thing:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)

    begun = time.monotonic()
    with time_limit():
        Thing()
        time.sleep(30)
    assert time.monotonic() - begun < 29


def test_a_process_that_no_signal_reaches_says_where_it_is() -> None:
    held_up = """
import signal, time
from routelaw.bench import results
results.EXIT_LATE_S = 0.5
with results.time_limit(0.1):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(60)
"""
    ended = subprocess.run([sys.executable, "-c", held_up], capture_output=True, text=True, timeout=55, check=False)
    assert ended.returncode == 1
    assert "line 7 in <module>" in ended.stderr


def test_nothing_is_left_behind() -> None:
    before = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGTERM)
    with time_limit(100):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGTERM)) == before


def test_another_error_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), time_limit(100):
        1 / 0  # noqa: B018
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_code_goes_by_the_name_that_git_has_for_it(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "core.autocrlf=false"]
        done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    folder = tmp_path / "package"
    for name in ("a.py", "a/b.py", "a-b/c.py", "a.b/é.py", "__pycache__/a.pyc"):  # git sorts folders as "a/"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name} = 1\n", encoding="utf-8")
    (folder / "a-b" / "c.py").chmod(0o755)
    (tmp_path / ".gitignore").write_text("__pycache__\n")
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "a")
    assert tree(folder) == git("rev-parse", "HEAD:package")
    (folder / "a" / "b.py").write_text("b = 2\n")
    assert tree(folder) != git("rev-parse", "HEAD:package")


def test_a_table_is_one_line(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "results.jsonl")
    rows, failures = {"d=8": {"ratio": 0.5}}, (Failure("flex", "Error: no", "d=8"),)
    for name, device in (("models", "NVIDIA H200"), ("layer", "CPU (2 threads)")):
        environment = Environment(device, "2.13", "2026-11-19")
        file.append_table(Table(name, "8 tokens", "itself", {"ratio": ""}, rows, failures, environment))
    file.append("nothing", "8 tokens", {})
    gpu, cpu = map(json.loads, file.path.read_text().splitlines())
    assert (gpu["benchmark"], cpu["benchmark"]) == ("gpu_step", "layer")
    assert gpu["device"] == "NVIDIA H200, torch 2.13"
    assert gpu["data"] == "8 tokens"
    assert gpu["figures"] == {"d=8/ratio": 0.5, "d=8/flex": "failed: Error: no"}
    assert gpu["package"] == tree(Path(results.__file__).parents[1])[:7]


def test_a_file_in_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        ResultsFile(tmp_path / "none" / "results.jsonl")
