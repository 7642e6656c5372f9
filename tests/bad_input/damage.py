"""Damage to what we wrote ourselves: corpora, runs, checkpoints, stores.

A damaged corpus is refused. A damaged run is refused, or read as far as it is whole: with the same result as without
the damage, or with a sentence that says what was left aside.
"""

from __future__ import annotations

import datetime
import decimal
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sandbox import ABSENT, reseal_manifest, reseal_state

from routelaw.corpus.manifest import HEADER_BYTES, ArrayWriter, Manifest, record_of
from routelaw.specs.files import from_mapping

Damage = Callable[[Path], None]
"""Does it to a copy of the place."""


def _replaced(content: bytes) -> Callable[[Path], None]:
    def do(file: Path) -> None:
        file.write_bytes(content)

    return do


def _by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def do(file: Path) -> None:
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink()
        make(file)

    return do


def _halved(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def _flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


TO_ANY_FILE: dict[str, Callable[[Path], None]] = {
    "emptied": _replaced(b""),
    "halved": _halved,
    "flipped": _flipped,
    "noise": _replaced(bytes(range(256)) * 8),
    "a folder": _by(Path.mkdir),
    "a FIFO": _by(os.mkfifo),
    "gone": _by(lambda file: None),
    "dangling": _by(lambda file: file.symlink_to("nowhere")),
    "a device": _by(lambda file: file.symlink_to("/dev/zero")),
}
TO_JSON: dict[str, Callable[[Path], None]] = {
    "null": _replaced(b"null\n"),
    "a list": _replaced(b"[]\n"),
    "a number": _replaced(b"7\n"),
    "an empty object": _replaced(b"{}\n"),
    "NaN": _replaced(b'{"step": NaN, "loss_validation": NaN}\n'),
    "infinite": _replaced(b'{"step": 1e999}\n'),
    "deep": _replaced(b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n"),
    "5,000 digits": _replaced(b'{"step": ' + b"9" * 5000 + b"}\n"),
    "surrogates": _replaced(b'{"run_id": "\\ud800", "status": "\\udfff"}\n'),
    "markup": _replaced(b'{"run_id": "[/x]", "reason": "[red]\\u001b[31m", "host": "[/x]", "status": "[/y]"}\n'),
}

CORPUS_FILES = ("manifest.json", "tokenizer.model", "train-00000.tokens", "train.index", "validation.frequencies")
RUN_FILES = (
    "spec.json",
    "result.json",
    "evaluations.jsonl",
    "log.jsonl",
    "loads.jsonl",
    "tokenizer.model",
    "checkpoints",
)
STATE_FILES = ("state.json", "model-00000.safetensors", "optimizer-00000.safetensors")
OF_JSON = (".json", ".jsonl")


def _damages(file: str) -> dict[str, Callable[[Path], None]]:
    if "." not in file:
        return {name: TO_ANY_FILE[name] for name in ("a FIFO", "gone", "dangling", "a device")}  # to a folder
    return TO_ANY_FILE | (TO_JSON if file.endswith(OF_JSON) else {})


def damaged_corpora() -> Iterator[tuple[str, str, Damage]]:
    """Name, command line and damage; each must be refused."""
    for file in CORPUS_FILES:
        for name, do in _damages(file).items():
            yield f"corpus {file} {name}", "corpus show {corpus} --verify", _to(f"corpus/{file}", do)
            if name in ("emptied", "a FIFO", "gone", "null", "flipped"):
                yield f"corpus {file} {name}, trained on", "train --spec {spec} --out out", _to(f"corpus/{file}", do)
                yield f"corpus {file} {name}, swept over", "sweep {sweep} --store out", _to(f"corpus/{file}", do)
    for name, changes in RESEALED_MANIFESTS.items():

        def reseal(place: Path, changes: dict = changes) -> None:
            reseal_manifest(place / "corpus", **changes)

        yield f"corpus with {name}", "corpus show {corpus}", reseal
        yield f"corpus with {name}, trained on", "train --spec {spec} --out out", reseal
    for name, change in RESEALED_CORPORA.items():
        for line in (
            "corpus show {corpus} --verify",
            "train --spec {spec} --out out",
            "corpus balance {corpus}",
            OTHER,
        ):
            yield f"corpus with {name}: {line.split()[1]}, {line.split()[0]}", line, _resealed(change)
    for file in ("validation-00000.tokens", "validation.index", "train.frequencies"):
        for line in ("corpus balance {corpus}", OTHER):
            yield f"corpus {file} off by a bit, {line.split()[0]}", line, _to(f"corpus/{file}", _first_flipped)
    for name, values in NOT_TEXT.items():
        for line in (
            "corpus build {place}/a.parquet --vocabulary 270 --out out",
            "eval {run} --on a={place}/a.parquet",
        ):
            yield f"corpus of {name}, {line.split()[0]}", line, _parquet(values)


OTHER = "eval {run} --on a={corpus}"
NOT_TEXT: dict[str, list] = {
    "integers": [1, 2, 3] * 100,
    "timestamps": [datetime.datetime(2020, 1, day) for day in range(1, 30)],
    "dates": [datetime.date(2020, 1, day) for day in range(1, 30)],
    "decimals": [decimal.Decimal("1.5")] * 100,
    "lists of text": [["a", "b"]] * 100,
}


def _parquet(values: list) -> Damage:
    def damage(place: Path) -> None:
        pq.write_table(pa.table({"text": values}), place / "a.parquet")

    return damage


def _first_flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[HEADER_BYTES] ^= 1
    file.write_bytes(content)


def _resealed(change: Callable[[Path, dict], None]) -> Damage:
    """A corpus changed in its parts, with every hash made right again: what no checksum finds."""

    def damage(place: Path) -> None:
        corpus = place / "corpus"
        content = json.loads((corpus / "manifest.json").read_bytes())
        change(corpus, content)
        stored = {name: content[name] for name in content if name not in ("sha256", "format", "id")}
        reseal_manifest(corpus, **stored, id=from_mapping(Manifest, stored, "").id)

    return damage


def _field(split: str, **fields: object) -> Callable[[Path, dict], None]:
    return lambda corpus, content: content["splits"][split].update(fields)


def _numbers(part: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path, dict], None]:
    """Other numbers in the file of a part of the validation split."""

    def do(corpus: Path, content: dict) -> None:
        record = content["splits"]["validation"][part]
        record = record[0] if part == "shards" else record
        file, kind, dtype = corpus / record["file"], *NUMBERS[part]
        values = change(np.frombuffer(file.read_bytes()[HEADER_BYTES:], dtype).copy())
        file.unlink()
        with ArrayWriter(file, kind, np.dtype(dtype)) as writer:
            writer.append(values)
            record.update(asdict(writer.close()))

    return do


def _put(at: int, value: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(values: np.ndarray) -> np.ndarray:
        values[at] = value
        return values

    return change


def _tokenizer(content: bytes) -> Callable[[Path, dict], None]:
    def do(corpus: Path, manifest: dict) -> None:
        (corpus / "tokenizer.model").write_bytes(content)
        manifest["tokenizer"] = asdict(record_of(corpus / "tokenizer.model"))

    return do


NUMBERS = {"shards": ("tokens", "<u2"), "index": ("documents", "<u8"), "frequencies": ("frequencies", "<i8")}
RESEALED_CORPORA: dict[str, Callable[[Path, dict], None]] = {
    "an index of odd length": _numbers("index", lambda index: index[1:]),
    "an index out of order": _numbers("index", _put(2, 10**9)),
    "an index of other documents": _numbers("index", _put(0, 3)),
    "a million documents": _field("validation", documents=10**6),
    "no documents, but text": _field("validation", documents=0),
    "a token beyond the vocabulary": _numbers("shards", _put(5, 60_000)),
    "another token": _numbers("shards", _put(5, 7)),
    "frequencies of more tokens": _numbers("frequencies", lambda counts: np.append(counts, 0)),
    "frequencies of fewer tokens": _numbers("frequencies", lambda counts: np.append(counts[:-2], counts[-2:].sum())),
    "negative frequencies": _numbers("frequencies", lambda counts: np.append(counts[:-2], [-9, counts[-2:].sum() + 9])),
    "a larger vocabulary": lambda corpus, content: content.update(vocabulary=1000),
    "another end of text": lambda corpus, content: content.update(end_of_text=5),
    "a tokenizer of noise": _tokenizer(bytes(range(256)) * 8),
    "a file with a NUL in its name": lambda corpus, content: content["splits"]["train"]["index"].update(file="a\0b"),
    "a file with an escape in its name": lambda corpus, content: content["tokenizer"].update(file="\x1b[31m"),
    "a file that is the folder above": lambda corpus, content: content["splits"]["train"]["index"].update(file=".."),
}  # fmt: skip


RESEALED_MANIFESTS: dict[str, dict[str, object]] = {
    **{f"no {name}": {name: ABSENT} for name in ("vocabulary", "end_of_text", "tokenizer", "splits", "format")},
    "a vocabulary in words": {"vocabulary": "many"},
    "a negative vocabulary": {"vocabulary": -1},
    "an enormous vocabulary": {"vocabulary": 2**62},
    "a vocabulary of half a token": {"vocabulary": 0.5},
    "another format": {"format": "routelaw corpus 99"},
    "no splits": {"splits": {}},
    "splits as a list": {"splits": []},
    "a split that is none": {"splits": {"train": 7}},
    "a tokenizer outside": {"tokenizer": {"file": "../table.csv", "bytes": 1, "sha256": "0", "count": 0}},
    "a tokenizer with an absolute path": {"tokenizer": {"file": "/etc/passwd", "bytes": 1, "sha256": "0", "count": 0}},
    "a tokenizer of wrong types": {"tokenizer": {"file": 7, "bytes": "x", "sha256": None, "count": []}},
    "a tokenizer with unknown keys": {"tokenizer": {"file": "tokenizer.model", "nonsense": 1}},
    "an end of text beyond the vocabulary": {"end_of_text": 10**9},
}


def damaged_runs() -> Iterator[tuple[str, str, Damage]]:
    """Name, command line and damage; each must be refused or sound."""
    for file in RUN_FILES:
        for name, do in _damages(file).items():
            yield f"run {file} {name}, evaluated", "eval {run} --on a={other} --json", _to(f"run/{file}", do)
            yield f"run {file} {name}, continued", f"{CONTINUE} --json", _to(f"half/{file}", do, True)
            yield f"store {file} {name}, listed", "runs list {store_of_one} --json", _in_store(file, do)
            if name in ("a FIFO", "emptied", "null", "markup", "halved"):
                yield f"store {file} {name}, shown", "runs list {store_of_one}", _in_store(file, do)
                yield f"store {file} {name}, exported", "runs export {store_of_one} --out out.csv", _in_store(file, do)
                yield f"store {file} {name}, fitted", "fit {store_of_one} --router hash", _in_store(file, do)
    for file in STATE_FILES:
        for name, do in _damages(file).items():
            newest = f"checkpoints/step-00000006/{file}"
            yield f"checkpoint {file} {name}, continued", f"{CONTINUE} --json", _to(f"half/{newest}", do)
            yield f"checkpoint {file} {name}, evaluated", "eval {run} --on a={other} --json", _to(f"run/{newest}", do)
    for name, change in RESEALED_STATES.items():

        def reseal(place: Path, change: Callable = change) -> None:
            reseal_state(place / "half" / "checkpoints" / "step-00000006", change)

        yield f"checkpoint with {name}, continued", f"{CONTINUE} --json", reseal
        yield f"checkpoint with {name}, evaluated", "eval {place}/half --on a={other} --json", reseal
    for name in ("step-²", "step-", "step--1", "step-99999999999999999999", "step-00000009"):
        yield f"a checkpoint called {name}", f"{CONTINUE} --json", _to("half/checkpoints", _with_folder(name))
    for name in (".claim", ".lock", "lease.json", "failure.json", "output.log"):
        for damage, do in ({"a FIFO": os.mkfifo, "a folder": Path.mkdir} | _made(TO_JSON)).items():
            if damage == "markup" and name in ("lease.json", "failure.json"):  # a host and a reason with odd names
                continue
            yield f"attempt {name} {damage}", "runs list {store} --json", _in_attempt(name, do)
    for name in ("[red]x", "\x1b[31m", "step-²", "a\nb", ".hidden", "ü" * 80, "x.²", "-rf"):
        yield f"a folder called {name!r}", "runs list {store}", _to("store", _with_folder(name))
        yield f"an attempt called {name!r}", "runs list {store}", _to("store/unfinished", _with_folder(name))
    for name, do in TO_ANY_FILE.items():
        if name == "gone":  # removed by hand, which is nobody's damage
            continue
        yield f"imported table {name}", "runs list {store}", _to("store/imported/theirs.parquet", do)


CONTINUE = "train --spec {spec} --seed 2 --steps 9 --out {place}/half"


def _without(name: str) -> Callable[[dict], object]:
    return lambda state: state.pop(name) and None


def _index(shape: list[int], part: dict) -> dict:
    return {"model": {"embedding": {"shape": shape, "parts": [part]}}}


def _reshaped(entry: dict) -> None:
    """A tensor of as many elements, with its sides exchanged."""
    for sides in (entry["shape"], entry["parts"][0]["length"]):
        sides.reverse()


RESEALED_STATES: dict[str, Callable[[dict], object]] = {
    **{f"no {name}": _without(name) for name in ("step", "counters", "spec", "sha256")},
    "a list for a state": lambda state: [],
    "a step in words": lambda state: state.update(step="six"),
    "a negative step": lambda state: state.update(step=-6),
    "a step beyond the run": lambda state: state.update(step=10**6),
    "half a step": lambda state: state.update(step=0.5),
    "counters of nonsense": lambda state: state.update(counters={"nonsense": 1, "step": 3}),
    "counters of wrong types": lambda state: state.update(counters={"skipped": "many", "status": 7}),
    "counters as a list": lambda state: state.update(counters=[]),
    "a status that is none": lambda state: state["counters"].update(status="[/x]"),
    "another spec": lambda state: state["spec"]["train"].update(steps=99),
    "a spec of wrong types": lambda state: state["spec"].update(train=7),
    "a spec without a model": lambda state: _without("model")(state["spec"]),
    "hashes as a list": lambda state: state.update(sha256=[]),
    "hashes of nonsense": lambda state: state.update(sha256={"model": 7}),
    "a file outside": lambda state: state.update(sha256={**state["sha256"], "../../spec.json": "0"}),
    "an index of nonsense": lambda state: state.update(index=7),
    "an index of an enormous tensor": lambda state: state.update(
        index={"model": {"embedding": {"shape": [2**40, 2**20], "parts": []}}}
    ),
    "an index of an enormous tensor in a part": lambda state: state.update(
        index=_index([2**40, 2**20], {"file": "model-00000.safetensors", "start": [0, 0], "length": [2**40, 2**20]})
    ),
    "an index of another shape": lambda state: _reshaped(state["index"]["model"]["embedding"]),
    "an index that leaves a part out": lambda state: state["index"]["model"].pop("embedding") and None,
    "an index that lacks one of the optimizer's tensors": lambda state: state["index"]["optimizer"].pop(
        "exp_avg/embedding"
    ) and None,
    "an index of a kind without tensors": lambda state: state["index"].update(optimizer={}),
    "an empty index": lambda state: state.update(index={}),
    "no index": _without("index"),
    "an index outside its tensor": lambda state: state.update(
        index=_index([4, 4], {"file": "model-00000.safetensors", "start": [-9, 9], "length": [99, 99]})
    ),
    "an index into another folder": lambda state: state.update(
        index=_index([4], {"file": "../../../table.csv", "start": [0], "length": [4]})
    ),
}  # fmt: skip


def _to(path: str, do: Callable[[Path], None], missing_is_fine: bool = False) -> Damage:
    def damage(place: Path) -> None:
        if (place / path).exists() or not missing_is_fine:
            do(place / path)

    return damage


def _in_store(file: str, do: Callable[[Path], None]) -> Damage:
    def damage(place: Path) -> None:
        (folder,) = (place / "store_of_one").iterdir()
        do(folder / file)

    return damage


def _in_attempt(file: str, do: Callable[[Path], object]) -> Damage:
    def damage(place: Path) -> None:
        (folder,) = (place / "store" / "unfinished").iterdir()
        if (folder / file).exists():
            (folder / file).unlink()
        do(folder / file)

    return damage


def _with_folder(name: str) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        (folder / name).mkdir(exist_ok=True)
        for inside in ("evaluations.jsonl", "spec.json", "state.json"):
            (folder / name / inside).write_text(json.dumps({"run_id": name}) + "\n")

    return do


def _made(damages: dict[str, Callable[[Path], None]]) -> dict[str, Callable[[Path], None]]:
    def creating(do: Callable[[Path], None]) -> Callable[[Path], None]:
        def made(file: Path) -> None:
            file.touch()
            do(file)

        return made

    return {name: creating(do) for name, do in damages.items()}
