"""Processes that train one run together: started, watched, named when they fail, and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from calling import Outcome, called

from routelaw.corpus.shards import Corpus
from routelaw.distributed.launch import launch

STEPS, SAVED, EVALUATED, HANG_TIMEOUT = 36, 6, 12, 15.0
WITHIN = 120.0
"""Seconds, beyond the hang timeout of the run, in which it must have ended on a busy machine."""


def in_each(code: str, world: int = 2, **options):
    return launch([sys.executable, "-c", f"import os, sys, time\n{code}"], world, keep_stderr=True, **options)


def test_each_knows_its_place_and_what_it_was_told(tmp_path: Path) -> None:
    code = f"open({str(tmp_path)!r} + '/' + os.environ['RANK'], 'w').write(os.environ['WORLD_SIZE'] + sys.stdin.read())"
    assert in_each(code, 3, stdin=" told").well
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys("012", "3 told")


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("os.kill(os.getpid(), 9)", "process 1 of 2 was ended by SIGKILL (out of memory?"),
        (
            "os.kill(os.getpid(), 4)",
            "process 1 of 2 was ended by SIGILL (an instruction that this CPU",
        ),
        ("sys.exit(7)", "process 1 of 2 ended with code 7"),
        ("sys.exit('error: it is broken.')", "it is broken"),
    ],
)
def test_the_one_that_fails_is_named_and_the_others_are_ended(end: str, reason: str) -> None:
    begun = time.monotonic()
    ended = in_each(f"if os.environ['RANK'] == '1': {end}\ntime.sleep(100)")
    assert ended.reason.startswith(reason)
    assert time.monotonic() - begun < 90


def test_a_signal_is_the_cause_even_if_it_shows_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one fails first, as by a connection that was closed."""
    monkeypatch.setattr("routelaw.distributed.launch.MOMENT", 30.0)
    code = f"""
there = {str(tmp_path / "there")!r}
if os.environ["RANK"] == "1":
    open(there, "w").close()
    time.sleep(1)
    os.kill(os.getpid(), 9)
while not os.path.exists(there):
    time.sleep(0.01)
sys.exit(1)
"""
    assert in_each(code).reason.startswith("process 1 of 2 was ended by SIGKILL (out of memory?")


def test_they_end_with_whoever_started_them(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
from routelaw.distributed.ranks import exit_with_parent
exit_with_parent()
open({str(tmp_path)!r} + '/' + str(os.getpid()), 'w')
time.sleep(100)
"""
    script = f"import sys\nfrom routelaw.distributed.launch import launch\nlaunch([sys.executable, '-c', {code!r}], 2)"
    parent = subprocess.Popen([sys.executable, "-c", script])
    until(lambda: len(list(tmp_path.iterdir())) == 2)
    parent.kill()
    parent.wait()
    until(lambda: not any(alive(int(path.name)) for path in tmp_path.iterdir()))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(so: Callable[[], bool], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def words(corpus: Corpus, folder: Path, **layout: int) -> list[str]:
    options = {
        "corpus": corpus.path, "size": "0.05M", "router": "s-base", "experts": 4, "steps": STEPS, "batch": 8,
        "sequence-length": 16, "device": "cpu", "evaluate-every": EVALUATED, "save-every": SAVED, "out": folder,
        **layout,
    }  # fmt: skip
    fields = ("router.group_tokens=16", "execution.log_every=1", f"execution.hang_timeout={HANG_TIMEOUT}")
    given = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    return ["train", *given, *(word for f in fields for word in ("--set", f))]


@contextmanager
def training(corpus: Corpus, folder: Path, **layout: int) -> Iterator[subprocess.Popen[str]]:
    known = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "routelaw", *words(corpus, folder, **layout)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=known)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def trained_here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """The command as `training` gives it, in this process, which launches others if the layout has several."""
    return lambda corpus, folder, **layout: called(words(corpus, folder, **layout), monkeypatch, capfd)


def process_of(rank: int, launcher: int) -> int:
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    known = {pid: Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in children}
    return next(int(pid) for pid, environ in known.items() if f"RANK={rank}".encode() in environ)


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def reached(folder: Path) -> int:
    """The last step in the log, whose last line may be half written."""
    try:
        return max((row["step"] for row in rows(folder / "log.jsonl")), default=0)
    except ValueError:
        return 0


@pytest.mark.long
def test_a_rank_stopped_or_killed_is_named_and_nothing_is_lost(
    tiny_corpus: Corpus, tmp_path: Path, trained_here: Callable[..., Outcome]
) -> None:
    """Stopped in the first start, killed in the second, left alone in the third: the run ends as on one process."""
    folder = tmp_path / "several"
    saved = 0
    for number, said in (
        (signal.SIGSTOP, "process 1 (pid {pid} on"),
        (signal.SIGKILL, "process 1 of 2 was ended by SIGKILL (out of memory?"),
    ):
        with training(tiny_corpus, folder, expert=2) as process:
            until(lambda enough=saved + SAVED + 3: reached(folder) >= enough)
            rank = process_of(1, process.pid)
            os.kill(rank, number)
            begun = time.monotonic()
            _, err = process.communicate(timeout=HANG_TIMEOUT + WITHIN)
            assert time.monotonic() - begun < HANG_TIMEOUT + WITHIN
        assert process.returncode in (5, 137)
        assert said.format(pid=rank) in err
        assert f"the same command goes on from the last checkpoint in {folder}" in err
        assert "Traceback" not in err
        assert not alive(rank)
        saved = max(int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*"))
        assert saved >= SAVED
    ended = trained_here(tiny_corpus, folder, expert=2)
    assert ended.code == 0, ended.err
    assert f"continuing after step {saved}" in ended.err
    assert trained_here(tiny_corpus, tmp_path / "one").code == 0
    assert [row["step"] for row in rows(folder / "log.jsonl")] == list(range(1, STEPS + 1))
    several, one = (rows(path / "evaluations.jsonl") for path in (folder, tmp_path / "one"))
    assert [row["step"] for row in several] == [12, 24, 36]
    for a, b in zip(several, one, strict=True):
        assert a["loss_validation"] == pytest.approx(b["loss_validation"], abs=1e-5)
    assert json.loads((folder / "result.json").read_text())["layout"] == "1×2×1"


@pytest.mark.parametrize("layout", [{}, pytest.param({"expert": 2}, marks=pytest.mark.long)], ids=["one", "two"])
def test_sigterm_leaves_a_checkpoint_of_the_step_at_hand(
    tiny_corpus: Corpus, tmp_path: Path, trained_here: Callable[..., Outcome], layout: dict[str, int]
) -> None:
    """Sent to all processes, as a batch system does; far from any checkpoint that was due."""
    steps = 60 if layout else 200
    folder, whole = tmp_path / "stopped", {**layout, "steps": steps, "save-every": 10_000}
    with training(tiny_corpus, folder, **whole) as process:
        until((folder / "spec.json").exists)  # the signal is listened to from before that
        for pid in (process.pid, *(process_of(rank, process.pid) for rank in range(2 if layout else 0))):
            os.kill(pid, signal.SIGTERM)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 143, err
    assert "Traceback" not in err
    (saved,) = (int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*"))
    assert saved == reached(folder) < steps
    assert f"the same command continues after step {saved}" in err
    if not layout:
        return  # that one process continues bit for bit, test_run.py has
    ended = trained_here(tiny_corpus, folder, **whole)
    assert ended.code == 0, ended.err
    assert f"continuing after step {saved}" in ended.err
    assert trained_here(tiny_corpus, tmp_path / "whole", **whole).code == 0
    stopped, undisturbed = (rows(path / "evaluations.jsonl") for path in (folder, tmp_path / "whole"))
    assert stopped == undisturbed


def refused(command: list[str]) -> str:
    """Standard error of a command that ends at once with exit code 2 or, under torchrun, 1. On a machine that is busy
    for longer than SILENCE the second process may speak, too."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode in (1, 2), done.stderr
    assert 1 <= done.stderr.count("error: ") <= 2, done.stderr
    return done.stderr


def test_what_does_not_divide_is_said_once(tiny_corpus: Corpus, tmp_path: Path, command) -> None:
    def said(**layout: int) -> str:
        done = command(*words(tiny_corpus, tmp_path / "run", **layout))
        assert done.code == 2
        return done.err

    assert "a batch of 8 sequences cannot be split evenly over 3 processes" in said(data=3)
    assert "4 experts cannot be spread evenly over 8 processes" in said(expert=8)
    assert "2 heads cannot be split evenly over 4 tensor-parallel processes" in said(tensor=4)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_torchrun_with_another_number_of_processes(tiny_corpus: Corpus, tmp_path: Path) -> None:
    start = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1", "--master-port=0"]
    err = refused([*start, "-m", "routelaw", *words(tiny_corpus, tmp_path / "run", expert=4)])
    assert "a layout of 1×4×1 (data × expert × tensor) needs 4 processes, and 2 were started" in err
    assert not (tmp_path / "run").exists()
