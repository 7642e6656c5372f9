"""A small world for commands to be wrong about: a table, a corpus, runs, a store, files of every kind.

Built once and copied for every case that damages something. Names in the command lines of the cases, `{table}` or
`{store}`, are paths in it.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from tiny_runs import EXECUTION, build, make_spec, make_text

from routelaw.corpus import Corpus
from routelaw.runs.files import read_runs
from routelaw.runs.listing import import_table
from routelaw.runs.store import Store
from routelaw.training.run import run

SPEC = """
corpus = "corpus"
[model]
d_model = 16
blocks = 2
heads = 2
kv_size = 8
sequence_length = 16
[router]
name = "hash"
experts = 4
group_tokens = 32
[train]
steps = 6
batch = 4
learning_rate = 3e-3
[execution]
device = "cpu"
threads = 1
save_every = 3
evaluate_every = 3
"""
SWEEP = SPEC.replace('name = "hash"\n', "") + '[[grid]]\nrouter.name = ["dense", "hash"]\n'
LAW = """
from routelaw import PowerSum, coefficient
LAW = PowerSum(name="mine", formula="log L = a log N + d", source="me", inputs=("active_params", "experts"),
               second=lambda x: x["experts"],
               terms=((coefficient("a", "slope", (1, 0)), coefficient("b", "slope", (0, 1)),
                       coefficient("d", "level", (0, 0))),))
"""
ROUTER = """
from routelaw.routers.router import register
from routelaw.routers.switch import Switch
@register("mine")
class Mine(Switch):
    pass
"""


def losses() -> pd.DataFrame:
    """Two routers and their dense models, from a bilinear law with noise."""
    rng, rows = np.random.default_rng(0), []
    for active in (15e6, 60e6, 250e6, 1e9):
        for router in ("dense", "s-base", "hash"):
            for experts in (1,) if router == "dense" else (2, 8, 32):
                u, v = np.log10(active), np.log10(experts)
                log_loss = 1.1 - 0.08 * u - 0.12 * v + 0.01 * u * v + 0.002 * rng.standard_normal()
                rows.append((f"{router}-{active:g}-{experts}", router, experts, int(active), 10**log_loss))
    return pd.DataFrame(rows, columns=["run_id", "router", "experts", "active_params", "loss_validation"])


def build_place(folder: Path) -> Path:
    folder.mkdir(parents=True)
    losses().to_csv(folder / "table.csv", index=False)
    for name, content in (("spec.toml", SPEC), ("sweep.toml", SWEEP), ("law.py", LAW), ("router.py", ROUTER)):
        (folder / name).write_text(content)
    corpus = build(folder)  # text.txt and corpus/
    _runs(folder, corpus)
    (folder / "other.txt").write_text(make_text(5, seed=9))
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (folder / "noise").write_bytes(np.random.default_rng(0).bytes(4096))
    (folder / "empty").touch()
    (folder / "empty_folder").mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    return folder


def _runs(folder: Path, corpus: Corpus) -> None:
    """A store with two ended runs, one that was stopped, and an imported table; beside it, a run by itself."""
    execution = replace(EXECUTION, evaluate_every=3, save_every=3)
    store = Store(folder / "store")
    for router in ("dense", "hash"):
        spec = make_spec(corpus, router, steps=6)
        run(spec, execution, corpus, store.path / spec.run_id)
    stopped = make_spec(corpus, "switch", steps=9)
    steps = iter(range(100))
    run(stopped, execution, corpus, store.path / "unfinished" / f"{stopped.run_id}.1", stop=lambda: next(steps) >= 5)
    import_table(store, read_runs(folder / "table.csv"), "theirs")
    spec = make_spec(corpus, "hash", steps=6, seed=1)
    run(spec, execution, corpus, folder / "run")
    steps = iter(range(100))
    run(make_spec(corpus, "hash", steps=9, seed=2), execution, corpus, folder / "half", stop=lambda: next(steps) >= 5)
    (folder / "store_of_one").mkdir()
    shutil.copytree(folder / "run", folder / "store_of_one" / spec.run_id)


def paths(place: Path) -> dict[str, str]:
    """What may stand in braces in a command line."""
    ended, *_ = (run.run_id for run in Store(place / "store").runs() if run.ended)
    named = {
        "table": "table.csv", "corpus": "corpus", "store": "store", "run": "run", "spec": "spec.toml",
        "sweep": "sweep.toml", "law": "law.py", "router": "router.py", "text": "text.txt", "other": "other.txt",
        "picture": "picture.png", "noise": "noise", "empty": "empty", "empty_folder": "empty_folder", "fifo": "fifo",
        "dangling": "dangling", "loop": "loop", "nowhere": "nowhere", "store_of_one": "store_of_one",
    }  # fmt: skip
    return {name: str(place / file) for name, file in named.items()} | {"run_id": ended, "place": str(place)}


def copied(place: Path, target: Path, parts: tuple[str, ...]) -> Path:
    """The parts of the place that a case damages, copied; the others linked to."""
    target.mkdir()
    for entry in place.iterdir():
        if entry.name not in parts:
            (target / entry.name).symlink_to(entry)
        elif entry.is_dir():
            shutil.copytree(entry, target / entry.name)
        else:
            shutil.copy(entry, target / entry.name)
    return target


def snapshot(place: Path) -> dict[str, tuple[int, int]]:
    """Every file below, with size and time of its last change: what a refused command must leave alone."""
    found = {}
    for folder, _, files in os.walk(place):
        found[folder] = (0, 0)
        for name in files:
            status = os.lstat(f"{folder}/{name}")
            found[f"{folder}/{name}"] = (status.st_size, status.st_mtime_ns)
    return found


def reseal_manifest(corpus: Path, **changes: object) -> None:
    """Change fields of a corpus's manifest and make its checksum right: damage that no checksum finds."""
    from routelaw.corpus.manifest import _digest

    content = json.loads((corpus / "manifest.json").read_bytes())
    del content["sha256"]
    for name, value in changes.items():
        if value is ABSENT:
            del content[name]
        else:
            content[name] = value
    try:
        digest = _digest(content)
    except (TypeError, ValueError):
        digest = "0"
    (corpus / "manifest.json").write_text(json.dumps({**content, "sha256": digest}))


def reseal_state(checkpoint: Path, change: object) -> None:
    """The same for the state of a checkpoint; `change` is called with it."""
    from routelaw.training.checkpoint import rendered

    state = json.loads((checkpoint / "state.json").read_bytes())["state"]
    changed = change(state)  # pyrefly: ignore
    (checkpoint / "state.json").write_bytes(rendered(state if changed is None else changed))


ABSENT = object()
