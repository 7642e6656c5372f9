"""Public tables of losses that are not run tables: one file each, recognised by their headers, found by being there.

A module of this package that defines `TABLE` takes part. None of the tables is part of this package: `routelaw data
fetch NAME` downloads one from its source and checks its hash. What an importer had to assume is a note of the table.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache

import pandas as pd

from routelaw.errors import InputError
from routelaw.runs.table import RunTable


@dataclass(frozen=True)
class PublicTable:
    name: str
    """What `routelaw data fetch` calls it."""
    title: str
    """Whose losses these are, and of what models."""
    url: str
    """Where it is downloaded from; empty where the losses were copied from text, and there is no file."""
    sha256: str
    license: str
    """As its repository states it."""
    file_name: str
    header: Collection[str]
    """Columns by which it is recognised: all of them are there."""
    runs: Callable[[pd.DataFrame, str], pd.DataFrame]
    """Its rows as those of a run table."""
    assumed: tuple[str, ...]
    """What the importer took for granted, a sentence each."""
    header_only: bool = False
    """Whether it has no other columns: where a header could be anybody's."""

    def is_header(self, columns: Collection[str]) -> bool:
        present, own = set(columns), set(self.header)
        return present == own if self.header_only else own <= present

    def read(self, frame: pd.DataFrame, source: str) -> RunTable:
        if frame.empty:
            raise InputError(f"{source}: the table is empty; it has a header and no rows.")
        table = RunTable.from_frame(self.runs(frame, source), source)
        return replace(table, notes=(f"read as {self.title}", *self.assumed, *table.notes))


@cache
def public_tables() -> dict[str, PublicTable]:
    """By name."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    tables = [module.TABLE for module in modules if hasattr(module, "TABLE")]
    return {table.name: table for table in tables}


def recognised(columns: Collection[str]) -> PublicTable | None:
    """The table that a header is of; None for a run table or an unknown one."""
    if "run_id" in columns:
        return None
    return next((table for table in public_tables().values() if table.is_header(columns)), None)
