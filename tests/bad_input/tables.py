"""Tables that must be refused, by every command that reads one."""

from __future__ import annotations

import bz2
import decimal
import functools
import gzip
import io
import lzma
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sandbox import losses

READERS = {
    "fit": "fit {bad} --router s-base",
    "compare": "compare {bad}",
    "epc": "epc {bad}",
    "advise": "advise {bad}",
    "plan": "plan {bad} --total-params 1B",
    "report": "report {bad} --out out",
    "import": "runs import {bad} --store {store}",
}


@functools.cache
def bad_table(name: str) -> bytes:
    """The content of one, made when it is first needed: packed nothing takes seconds to pack."""
    made = TABLES[name](losses())
    return made if isinstance(made, bytes) else _csv(made)


def _cell(column: str, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        cells = (table[column] if column in table else pd.Series("", index=table.index)).astype(object)
        cells.iloc[3] = value
        return table.assign(**{column: cells})

    return change


def _column(column: str, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda table: table.assign(**{column: value})


def _csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False).encode()


def _parquet(**columns: object) -> Callable[[pd.DataFrame], bytes]:
    """The table with some columns replaced by Arrow arrays of a type that no such column has."""

    def made(table: pd.DataFrame) -> bytes:
        arrow = pa.Table.from_pandas(table, preserve_index=False)
        for name, values in columns.items():
            array = values(len(table)) if callable(values) else values
            at = arrow.schema.get_field_index(name)
            arrow = arrow.append_column(name, array) if at < 0 else arrow.set_column(at, name, array)
        buffer = io.BytesIO()
        pq.write_table(arrow, buffer)
        return buffer.getvalue()

    return made


def _of(value: object, kind: pa.DataType | None = None) -> Callable[[int], pa.Array]:
    return lambda count: pa.array([value] * count, kind)


def _bomb(pack: Callable[[bytes], bytes]) -> Callable[[pd.DataFrame], bytes]:
    """Some 300 MB of nothing in a few hundred kilobytes."""
    return lambda table: pack(_csv(table) + b"\n" * (300 << 20))


def _hollow_parquet(table: pd.DataFrame) -> bytes:
    """A hundred million equal rows: a few kilobytes by dictionary and run-length encoding."""
    rows = 10_000_000
    one = {name: pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([table[name].iloc[0]]))
           for name in table}  # fmt: skip
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, pa.table(one).schema, compression="zstd") as writer:
        for _ in range(10):
            writer.write_table(pa.table(one))
    return buffer.getvalue()


TABLES: dict[str, Callable[[pd.DataFrame], pd.DataFrame | bytes]] = {
    # --- not a table
    "nothing": lambda t: b"",
    "blanks": lambda t: b" \n\n\t",
    "a header alone": lambda t: _csv(t[:0]),
    "prose": lambda t: b"Once upon a time there was no table.\nThe end.\n",
    "JSON": lambda t: t.to_json().encode(),
    "deep JSON": lambda t: b"[" * 200_000,
    "HTML": lambda t: b"<!doctype html><html><table></table></html>",
    "noise": lambda t: np.random.default_rng(0).bytes(5000),
    "NUL bytes": lambda t: _csv(t).replace(b",", b"\0"),
    "UTF-16": lambda t: _csv(t).decode().encode("utf-16"),
    "latin-1": lambda t: _csv(t).replace(b"s-base", "s-bäse".encode("latin-1")),
    "a quote that never ends": lambda t: _csv(t).replace(b"s-base", b'"s-base', 1),
    "a ragged line": lambda t: _csv(t) + b"one,two\n",
    "a ZIP archive": lambda t: b"PK\x03\x04" + bytes(100),
    "a line of 5 MB in one cell": lambda t: _csv(t) + b"x" * (5 << 20) + b",dense,1,1e6,2.0\n",
    # --- size
    "gzip bomb": _bomb(lambda content: gzip.compress(content, 9)),
    "xz bomb": _bomb(lambda content: lzma.compress(content, preset=1)),
    "bzip2 bomb": _bomb(lambda content: bz2.compress(content, 1)),
    "zstd bomb": _bomb(lambda content: pa.compress(content, codec="zstd", asbytes=True)),
    "a hundred thousand columns": lambda t: (
        ",".join([*t.columns, *(f"extra_{i}" for i in range(100_000))]).encode() + b"\n" + b",".join([b"1"] * 100_005)
    ),
    "hollow Parquet": _hollow_parquet,
    "gzip cut short": lambda t: gzip.compress(_csv(t))[:-20],
    "xz cut short": lambda t: lzma.compress(_csv(t))[:-20],
    "Parquet cut short": lambda t: t.to_parquet()[:-100],
    "Parquet with a broken foot": lambda t: t.to_parquet()[:-8] + b"\xff\xff\xff\x7fPAR1",
    # --- structure
    "no experts": lambda t: t.drop(columns="experts"),
    "no losses": lambda t: t.drop(columns="loss_validation"),
    "no run_id": lambda t: t.drop(columns="run_id"),
    "a column twice": lambda t: _csv(t).replace(b"experts", b"router", 1),
    "a column without a name": lambda t: _csv(t).replace(b"experts", b"", 1),
    "a run twice": lambda t: pd.concat([t, t]),
    "a run that is two models": lambda t: pd.concat([t.assign(step=1), t.assign(step=2, experts=t["experts"] * 2)]),
    "a step twice": lambda t: pd.concat([t, t]).assign(step=1),
    "no finished run": _column("status", "diverged"),
    "one row": lambda t: t[:1],
    # --- impossible cells
    "loss NaN": _cell("loss_validation", "nan"),
    "loss negative": _cell("loss_validation", -2.5),
    "loss zero": _cell("loss_validation", 0),
    "loss infinite": _cell("loss_validation", "inf"),
    "loss 1e308": _cell("loss_validation", 1e308),
    "loss 1e999": _cell("loss_validation", "1e999"),
    "loss 1e-320": _cell("loss_validation", 1e-320),
    "loss with an underscore": _cell("loss_validation", "1_0.5"),
    "loss in words": _cell("loss_validation", "two"),
    "loss in other digits": _cell("loss_validation", "٢.٥"),
    "loss in hexadecimal": _cell("loss_validation", "0x1p1"),
    "loss with a unit": _cell("loss_validation", "2.5 nats"),
    "loss in percent": _cell("loss_validation", "83%"),
    "loss with a decimal comma": _cell("loss_validation", "2,5"),
    "experts zero": _cell("experts", 0),
    "experts negative": _cell("experts", -8),
    "experts 2.5": _cell("experts", 2.5),
    "experts in words": _cell("experts", "many"),
    "experts of 5,000 digits": _cell("experts", "9" * 5000),
    "experts 1e30": _cell("experts", "1e30"),
    "experts missing": _cell("experts", ""),
    "experts with an underscore": _cell("experts", "1_0"),
    "N and E swapped": lambda t: t.rename(columns={"experts": "active_params", "active_params": "experts"}),
    "parameters zero": _cell("active_params", 0),
    "parameters NaN": _cell("active_params", "nan"),
    "parameters infinite": _cell("active_params", "inf"),
    "parameters 1e300": _cell("active_params", "1e300"),
    "parameters half": _cell("active_params", 0.5),
    "k zero": _cell("k", 0),
    "k above E": _column("k", 100),
    "k in words": _cell("k", "one"),
    "frequency zero": _cell("routing_frequency", 0),
    "frequency two": _cell("routing_frequency", 2),
    "frequency NaN text": _cell("routing_frequency", "often"),
    "total below active": lambda t: t.assign(total_params=t["active_params"] / 2),
    "total negative": _column("total_params", -1),
    "FLOPs zero": _column("flops_per_token", 0),
    "FLOPs infinite": _column("flops_per_token", "inf"),
    "seed in words": _cell("seed", "lucky"),
    "seed half": _cell("seed", 0.5),
    "seed negative": _cell("seed", -1),
    "step negative": _column("step", -1),
    "step half": _column("step", 0.5),
    "step missing in one row": lambda t: _cell("step", "")(t.assign(step=5)),
    "tokens negative": _column("tokens", -5),
    "tokens in words": _column("tokens", "many"),
    "router empty": _cell("router", ""),
    "router blanks": _cell("router", "  "),
    "run_id empty": _cell("run_id", ""),
    # --- types of Parquet
    "losses as lists": _parquet(loss_validation=_of([2.5])),
    "losses as text in bytes": _parquet(loss_validation=_of(b"\xff\xfe")),
    "losses as truth values": _parquet(loss_validation=_of(True)),
    "losses as dates": _parquet(loss_validation=_of(pd.Timestamp("2022-02-02"))),
    "losses as records": _parquet(loss_validation=_of({"a": 1.0})),
    "losses as nothing": _parquet(loss_validation=lambda n: pa.nulls(n)),
    "losses as enormous decimals": _parquet(loss_validation=_of(decimal.Decimal(10) ** 30)),
    "experts as truth values": _parquet(experts=_of(True)),
    "experts as lists": _parquet(experts=_of([1])),
    "experts as enormous unsigned numbers": _parquet(experts=_of(2**64 - 1, pa.uint64())),
    "experts as durations": _parquet(experts=_of(8, pa.duration("s"))),
    "experts as nothing": _parquet(experts=lambda n: pa.nulls(n)),
    "parameters as records": _parquet(active_params=_of({"n": 1})),
    "parameters as bytes": _parquet(active_params=_of(b"many")),
    "steps as enormous unsigned numbers": _parquet(step=_of(2**64 - 1, pa.uint64())),
    "tokens as enormous unsigned numbers": _parquet(tokens=_of(2**64 - 1, pa.uint64())),
    "seeds as lists": _parquet(seed=_of([1])),
    "run_ids as lists": _parquet(run_id=lambda n: pa.array([[i] for i in range(n)])),
    "run_ids as nothing": _parquet(run_id=lambda n: pa.nulls(n)),
    "routers as nothing": _parquet(router=lambda n: pa.nulls(n)),
    "an extra column of bytes of one length": _parquet(extra=_of(b"abcd", pa.binary(4))),
    "an extra column of views of bytes": _parquet(extra=_of(b"abcd", pa.binary_view())),
    "dates past the year 9999": _parquet(extra=lambda n: pa.array([2**31 - 1] * n, pa.int32()).cast(pa.date32())),
    # --- rows that contradict each other
    "a run of two totals": lambda t: pd.concat(
        [t.assign(step=1, total_params=t["active_params"]), t.assign(step=2, total_params=t["active_params"] * 2)]
    ),
    "a run of two seeds": lambda t: pd.concat([t.assign(step=1, seed=1), t.assign(step=2, seed=2)]),
    "a run of two sizes": lambda t: pd.concat([t.assign(step=1, size="1B"), t.assign(step=2, size="2B")]),
    "two columns without names": lambda t: _csv(t).replace(b"\n", b",,\n"),
}
