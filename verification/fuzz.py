"""Mutations of tables, specs, corpora and checkpoints: each is refused with an InputError, or read correctly.

    python -m verification.fuzz                     10,000 mutations, 2,500 of each kind
    python -m verification.fuzz tables --count 500  of one kind
    python -m verification.fuzz --seed 7            others

Hypothesis draws the mutations and shrinks those that fail; failing ones are kept in verification/examples and tried
again first. What is right is decided without the reader's help: accepted tables hold only possible numbers and are
the same when written and read again, specs keep their id, corpora and checkpoints are bit for bit what was written.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import shutil
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase

from routelaw.corpus import Corpus, open_corpus
from routelaw.corpus.manifest import _digest
from routelaw.errors import InputError
from routelaw.runs.files import read_runs, write_runs
from routelaw.runs.table import RunTable
from routelaw.specs.counting import Architecture
from routelaw.specs.files import from_mapping, from_stored, gather_tables, run_spec, to_mapping
from routelaw.specs.run import ExecutionSpec, ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.training.checkpoint import Damaged, latest_checkpoint, load_checkpoint, rendered
from routelaw.training.run import run
from verification.kills import seeded_corpus

EXAMPLES = Path(__file__).parent / "examples"
COUNT = 10_000
# fmt: off
INTERESTING = [
    b"", b"0", b"-1", b"1e308", b"1e-320", b"1e999", b"nan", b"inf", b"-inf", b"NaN", b"null", b"true", b"[]", b"{}",
    b"\0", b"\n", b"\r", b",", b";", b"\t", b'"', b"'", b"=", b"[", b"]", b"{", b"}", b"9" * 25, b"9" * 5000, b"1_0",
    b"0x10", "٣".encode(), "²".encode(), b"\xff", b"\xed\xa0\x80", b"\x1b[31m", b"[red]", b"[/x]", b"../..",
    b"/dev/zero", b"[" * 3000, b"2.5", b"1", b"loss_", b"step", b"run_id",
]
VALUES = [
    None, True, False, 0, -1, 1, 2**31, 2**62, 2**63, 10**30, 0.5, -0.5, 1e308, "", "x", "../../x", "/dev/zero", "[/x]",
    "٣", "²", [], {}, [1], {"a": 1}, [[]], "9" * 5000, "\ud800", "nan",
]
# fmt: on
TOML = """
corpus = "corpus"
[model]
size = "0.2M"
sequence_length = 64
[router]
name = "rl-r"
experts = 8
k = 2
placement = "2,4"
[router.options]
variant = "S"
nucleus = 0.8
[train]
steps = 50
batch = 8
learning_rate = 1e-3
seed = 3
[execution]
threads = 1
evaluate_every = 10
"""

bytes_mutations = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.floats(0, 1), st.integers(0, 7)),
        st.tuples(st.just("cut"), st.floats(0, 1), st.floats(0, 1)),
        st.tuples(st.just("double"), st.floats(0, 1), st.floats(0, 0.1)),
        st.tuples(st.just("truncate"), st.floats(0, 1)),
        st.tuples(st.just("insert"), st.floats(0, 1), st.sampled_from(INTERESTING)),
        st.tuples(st.just("token"), st.integers(0, 10_000), st.sampled_from(INTERESTING)),
    ),
    min_size=1,
    max_size=4,
)
tree_mutations = st.lists(
    st.tuples(st.sampled_from(["set", "drop", "rename", "double"]), st.integers(0, 10_000), st.sampled_from(VALUES)),
    min_size=1,
    max_size=3,
)


def mutated(content: bytes, mutations: list[tuple]) -> bytes:
    """Bytes changed one mutation after another; positions are shares of the length, or numbers of tokens."""
    for kind, *how in mutations:
        at = int(how[0] * len(content)) if isinstance(how[0], float) else how[0]
        if kind == "flip" and content:
            at = min(at, len(content) - 1)
            content = content[:at] + bytes([content[at] ^ (1 << how[1])]) + content[at + 1 :]
        elif kind == "cut":
            content = content[:at] + content[at + int(how[1] * len(content)) :]
        elif kind == "double":
            piece = content[at : at + int(how[1] * len(content))]
            content = content[:at] + piece + content[at:]
        elif kind == "truncate":
            content = content[:at]
        elif kind == "insert":
            content = content[:at] + how[1] + content[at:]
        elif kind == "token":
            parts = content.replace(b"\n", b",\n,").split(b",")
            parts[at % len(parts)] = how[1]
            content = b",".join(parts).replace(b",\n,", b"\n")
    return content


def mutated_tree(tree: Any, mutations: list[tuple]) -> Any:
    """JSON with some of its values replaced, dropped, renamed or repeated."""
    tree = copy.deepcopy(tree)
    for kind, number, value in mutations:
        places: list[tuple[Any, Any]] = []
        _walk(tree, places)
        if not places:
            return copy.deepcopy(value)
        holder, key = places[number % len(places)]
        if kind == "drop":
            del holder[key]
        elif kind == "rename" and isinstance(holder, dict):
            holder[str(value)] = holder.pop(key)
        elif kind == "double" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        else:
            holder[key] = copy.deepcopy(value)  # drawn from one list: what changes it would change every later draw
    return tree


def _walk(tree: Any, places: list[tuple[Any, Any]]) -> None:
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        places.append((tree, key))
        _walk(tree[key], places)


@dataclass(frozen=True)
class World:
    """What is mutated, made once."""

    folder: Path
    tables: dict[str, bytes]
    spec: bytes
    corpus: Corpus
    tokens: dict[str, bytes]
    run_spec: RunSpec
    checkpoint: Path
    tensors: dict[str, torch.Tensor]

    @classmethod
    def made(cls, folder: Path) -> World:
        corpus = seeded_corpus(folder)
        spec = RunSpec(
            ModelSpec(Architecture(8, 2, 2, 4), vocabulary=corpus.vocabulary, sequence_length=8),
            RouterSpec("switch", 4, group_tokens=16),
            TrainSpec(steps=4, batch=4),
            corpus.id,
        )
        execution = ExecutionSpec(device="cpu", threads=1, save_every=2, evaluate_every=4, evaluate_tokens=64)
        run(spec, execution, corpus, folder / "run")
        checkpoint = folder / "run" / "checkpoints" / "step-00000004"
        tokens = {name: split.tokens.read(0, len(split.tokens)).tobytes() for name, split in corpus.splits.items()}
        tensors = load_checkpoint(checkpoint, spec).model
        return cls(folder, _tables(), TOML.encode(), corpus, tokens, spec, checkpoint, tensors)


def _tables() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    rows = [
        (f"{router}-{size}-{experts}", router, experts, size * 10**6, 2.5 + rng.random())
        for router in ("dense", "s-base")
        for size in (15, 60, 250)
        for experts in ((1,) if router == "dense" else (2, 8))
    ]
    frame = pd.DataFrame(rows, columns=["run_id", "router", "experts", "active_params", "loss_validation"])
    frame = frame.assign(variant="", k=1, routing_frequency=0.5, seed=0, step=100, tokens=100_000)
    return {"csv": frame.to_csv(index=False).encode(), "parquet": frame.to_parquet(index=False)}


def tables(world: World, data: Any) -> bool:
    kind, mutations = data.draw(st.sampled_from(sorted(world.tables))), data.draw(bytes_mutations)
    file, again = world.folder / f"mutated.{kind}", world.folder / "again.parquet"
    file.write_bytes(mutated(world.tables[kind], mutations))
    try:
        table = read_runs(file)
    except InputError:
        return False
    _check_table(table)
    write_runs(table, again, force=True)
    pd.testing.assert_frame_equal(read_runs(again).frame[list(table.frame)], table.frame, check_dtype=False)
    return True


def _check_table(table: RunTable) -> None:
    frame = table.frame
    for loss in table.losses:
        given_loss = frame[loss].dropna()
        assert ((given_loss > 1e-9) & (given_loss < 1e4)).all(), given_loss
    assert (frame["experts"] >= 1).all()
    assert (frame["k"] >= 1).all()
    assert (frame["k"] <= frame["experts"]).all()
    assert frame["routing_frequency"].between(0, 1, "right").all()
    assert (np.isfinite(frame["active_params"]) & (frame["active_params"] > 0)).all()
    assert (frame["router"].str.len() > 0).all()
    assert (frame["run_id"].str.len() > 0).all()


def specs(world: World, data: Any) -> bool:
    mutations, tree = data.draw(bytes_mutations), data.draw(st.none() | tree_mutations)
    file = world.folder / "mutated.toml"
    file.write_bytes(mutated(world.spec, mutations) if tree is None else _as_toml(world.spec, tree))
    try:
        values = gather_tables(file)
        values.pop("corpus", None)
        execution = from_mapping(ExecutionSpec, values.pop("execution", {}), "execution")
        spec = run_spec(values, "corpus", str(file))
        counts = spec.counts
    except InputError:
        return False
    stored = json.loads(json.dumps(to_mapping(spec), allow_nan=False))
    assert from_stored(stored, "stored").run_id == spec.run_id
    assert 0 < counts.active_params <= counts.total_params
    assert counts.flops_per_token > 0
    assert all(math.isfinite(v) for v in vars(execution).values() if isinstance(v, int | float))
    return True


def _as_toml(content: bytes, mutations: list[tuple]) -> bytes:
    """The file's tables with values replaced, written by hand: there is no writer in the standard library."""
    tree = mutated_tree(tomllib.loads(content.decode()), mutations)
    lines = []

    def write(table: Any, path: str) -> None:
        plain = {k: v for k, v in table.items() if not isinstance(v, dict)}
        lines.extend(f"{json.dumps(str(k))} = {json.dumps(v)}" for k, v in plain.items() if v is not None)
        for key, value in table.items():
            if isinstance(value, dict):
                name = f"{path}.{json.dumps(str(key))}" if path else json.dumps(str(key))
                lines.append(f"[{name}]")
                write(value, name)

    write(tree if isinstance(tree, dict) else {}, "")
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def corpora(world: World, data: Any) -> bool:
    file = data.draw(st.sampled_from(sorted(p.name for p in world.corpus.path.iterdir())))
    mutations, tree = data.draw(bytes_mutations), data.draw(st.none() | tree_mutations)
    folder = world.folder / "mutated corpus"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(world.corpus.path, folder)
    target = folder / ("manifest.json" if tree is not None else file)
    if tree is None:
        target.write_bytes(mutated(target.read_bytes(), mutations))
    else:  # with a checksum that is right
        content = json.loads(target.read_bytes())
        del content["sha256"]
        content = mutated_tree(content, tree)
        sealed = {**content, "sha256": _digest(content)} if isinstance(content, dict) else content
        target.write_text(json.dumps(sealed))
    try:
        corpus = open_corpus(folder, verify=True)
        tokens = {name: split.tokens.read(0, len(split.tokens)).tobytes() for name, split in corpus.splits.items()}
    except InputError:
        return False
    assert tokens == world.tokens
    assert corpus.id == world.corpus.id
    return True


def checkpoints(world: World, data: Any) -> bool:
    file = data.draw(st.sampled_from(["model-00000.safetensors", "optimizer-00000.safetensors", "state.json"]))
    mutations, tree = data.draw(bytes_mutations), data.draw(st.none() | tree_mutations)
    folder = world.folder / "mutated checkpoints"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(world.checkpoint, folder / world.checkpoint.name)
    target = folder / world.checkpoint.name / ("state.json" if tree is not None else file)
    if tree is None:
        target.write_bytes(mutated(target.read_bytes(), mutations))
    else:
        state = mutated_tree(json.loads(target.read_bytes())["state"], tree)
        try:
            target.write_bytes(rendered(state))
        except ValueError:  # a number that our own writer refuses
            return False
    notices: list[str] = []
    try:
        found = latest_checkpoint(folder, world.run_spec, notices.append)
    except (InputError, Damaged):
        return False
    if found is None:
        assert notices
        return False
    assert found.step == 4
    assert found.model.keys() == world.tensors.keys()
    assert all(torch.equal(found.model[name], tensor) for name, tensor in world.tensors.items())
    return True


KINDS = {"tables": tables, "specs": specs, "corpora": corpora, "checkpoints": checkpoints}
"""Each reads something mutated; whether it was accepted."""


def fuzz(kind: str, count: int, number: int, world: World) -> tuple[int, int]:
    """Try so many mutations; how many were tried, and how many accepted."""
    outcomes: list[bool] = []

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=DirectoryBasedExampleDatabase(EXAMPLES / kind),
        suppress_health_check=list(HealthCheck),
        phases=[Phase.reuse, Phase.generate, Phase.shrink],
        print_blob=True,
    )
    @given(st.data())
    def test(data: Any) -> None:
        outcomes.append(KINDS[kind](world, data))

    test()
    return len(outcomes), sum(outcomes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*", help=f"any of {', '.join(KINDS)}; all unless given")
    parser.add_argument("--count", type=int, help=f"mutations in all ({COUNT:,})", default=COUNT)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    kinds = asked.kinds or list(KINDS)
    if unknown := set(kinds) - set(KINDS):
        sys.exit(f"error: there is no kind {sorted(unknown)[0]!r}; there are {', '.join(KINDS)}.")
    with tempfile.TemporaryDirectory() as folder:
        world = World.made(Path(folder))
        for kind in kinds:
            tried, accepted = fuzz(kind, asked.count // len(kinds), asked.seed, world)
            print(f"{kind}: {tried:,} mutations, {accepted:,} read correctly, {tried - accepted:,} refused", flush=True)


if __name__ == "__main__":
    main()
