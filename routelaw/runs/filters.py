"""Some rows of a run table: those for which a condition holds, and the best run of every cell of a grid.

A condition is read as an expression of comparisons and never run as code.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.formatting import shortened
from routelaw.runs.table import (
    DESCRIPTION,
    FINISHED,
    LOSS_PREFIX,
    TELLS_APART,
    RunTable,
    last_rows,
    last_status,
)
from routelaw.specs.names import nearest_hint

LONGEST_CONDITION = 2000
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
EXAMPLE = "tokens>=1e9 and experts>1"


def where(table: RunTable, condition: str) -> RunTable:
    """The rows for which a condition on the columns holds; the notes say how many.

    Comparisons (==, !=, <, <=, >, >=, in, not in) of columns, numbers, quoted texts and sums, differences, products
    and ratios of these, joined by and, or and not. A row in which a compared cell is empty is left out.

    >>> rl.where(table, "experts > 1 and router in ('hash', 's-base')").routers
    ['s-base', 'hash']
    """
    kept = _Condition(table.frame, condition).rows()
    if not kept.any():
        raise InputError(f"{table.source}: no row has {shortened(condition, 200)}.")
    note = f"{int(kept.sum())} of {len(kept)} rows have {shortened(condition, 200)}."
    return replace(table, frame=table.frame[kept].reset_index(drop=True), notes=(*table.notes, note))


class _Condition:
    """One condition on one table. Values are arrays with an entry per row, or single ones; empty cells are known
    beside them, because comparing with nothing is neither true nor false."""

    def __init__(self, frame: pd.DataFrame, text: str) -> None:
        self.frame, self.text = frame, text

    def rows(self) -> np.ndarray:
        if len(self.text) > LONGEST_CONDITION:
            raise InputError(f"a condition has at most {LONGEST_CONDITION} characters, and this one {len(self.text)}.")
        try:
            tree = ast.parse(self.text.strip(), mode="eval")
            truth_N, empty_N = self._truth(tree.body)
        except InputError:
            raise
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise InputError(
                f"the condition {shortened(self.text, 200)!r} cannot be read: write comparisons joined by and, or and "
                f'not, such as "{EXAMPLE}".'
            ) from None
        return truth_N & ~empty_N

    def _truth(self, node: ast.expr) -> tuple[np.ndarray, np.ndarray]:
        """Where it is true, and where it cannot be told because a cell is empty."""
        match node:
            case ast.BoolOp(op=ast.And(), values=values):
                parts = [self._truth(value) for value in values]
                false_N = np.any([~truth & ~empty for truth, empty in parts], axis=0)
                empty_N = np.any([empty for _, empty in parts], axis=0) & ~false_N
                return np.all([truth for truth, _ in parts], axis=0) & ~empty_N, empty_N
            case ast.BoolOp(op=ast.Or(), values=values):
                parts = [self._truth(value) for value in values]
                true_N = np.any([truth & ~empty for truth, empty in parts], axis=0)
                return true_N, np.any([empty for _, empty in parts], axis=0) & ~true_N
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                truth_N, empty_N = self._truth(operand)
                return ~truth_N & ~empty_N, empty_N
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                truth_N, empty_N = np.ones(len(self.frame), bool), np.zeros(len(self.frame), bool)
                for op, first, second in zip(ops, [left, *comparators], comparators, strict=False):
                    one_N, unknown_N = self._compared(op, first, second)
                    truth_N, empty_N = truth_N & one_N, empty_N | unknown_N
                return truth_N & ~empty_N, empty_N
        raise InputError(
            f"the condition {shortened(self.text, 200)!r} has {shortened(ast.unparse(node), 60)!r} where a comparison "
            f'must stand, such as "{EXAMPLE}".'
        )

    def _compared(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.Tuple | ast.List | ast.Set) or not right.elts:
                raise InputError(f'after "in" a condition needs values in brackets: "{self._sides(left, op, right)}".')
            parts = [self._compared(ast.Eq(), left, element) for element in right.elts]
            truth_N = np.any([truth for truth, _ in parts], axis=0)
            empty_N = np.any([empty for _, empty in parts], axis=0)
            return (truth_N if isinstance(op, ast.In) else ~truth_N & ~empty_N), empty_N
        if type(op) not in COMPARISONS:
            raise InputError(f"a condition compares by ==, !=, <, <=, >, >= and in: {self._sides(left, op, right)!r}.")
        first, second = self._value(left), self._value(right)
        texts = [_is_text(first), _is_text(second)]
        if texts[0] != texts[1]:
            raise InputError(
                f"the condition compares text with a number in {self._sides(left, op, right)!r}: texts stand in quotes."
            )
        if texts[0] and not isinstance(op, ast.Eq | ast.NotEq):
            raise InputError(f"texts are equal or not, and have no order: {self._sides(left, op, right)!r}.")
        empty_N = np.broadcast_to(pd.isna(first) | pd.isna(second), len(self.frame))
        with np.errstate(all="ignore"):
            truth = COMPARISONS[type(op)](first, second)
        return np.broadcast_to(np.asarray(truth, bool), len(self.frame)) & ~empty_N, empty_N

    def _value(self, node: ast.expr) -> Any:
        """A number, a text, or a column of either: numbers as float64, texts as objects."""
        match node:
            case ast.Constant(value=bool()):
                return float(node.value)
            case ast.Constant(value=int() | float() | str() as value):
                return value if isinstance(value, str) else float(value)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                value = self._number(operand)
                return -value if isinstance(sign, ast.USub) else value
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                with np.errstate(all="ignore"):
                    return ARITHMETIC[type(op)](np.float64(self._number(left)), np.float64(self._number(right)))
            case ast.Name(id=name):
                return self._column(name)
        raise InputError(
            f"the condition {shortened(self.text, 200)!r} has {shortened(ast.unparse(node), 60)!r}: it may hold "
            "columns, numbers, texts in quotes, and + - * / of numbers."
        )

    def _number(self, node: ast.expr) -> Any:
        value = self._value(node)
        if _is_text(value):
            raise InputError(f"{shortened(ast.unparse(node), 60)!r} is text: the condition reckons with numbers.")
        return value

    def _column(self, name: str) -> np.ndarray:
        names = [str(column) for column in self.frame]
        if name not in names:
            raise InputError(
                f"the condition names a column {name!r}, which the table does not have{nearest_hint(name, names)}; "
                "texts stand in quotes."
            )
        cells = self.frame[name]
        if pd.api.types.is_numeric_dtype(cells) or pd.api.types.is_bool_dtype(cells):
            return cells.to_numpy(float, na_value=np.nan)
        return cells.astype(object).where(cells.notna(), None).to_numpy(object)

    @staticmethod
    def _sides(left: ast.expr, op: ast.cmpop, right: ast.expr) -> str:
        return shortened(ast.unparse(ast.Compare(left, [op], [right])), 100)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, np.ndarray) and value.dtype.kind == "O")


def best_of(table: RunTable, columns: Sequence[str], target: str) -> RunTable:
    """Of runs that differ in these columns alone (and their seed), the one with the lowest loss, as after a search over
    learning rates; the notes say how many were tried, and where the best lies on the edge of what was tried.

    >>> rl.best_of(table, ["seed"], "loss_validation").notes[-1]
    '36 cells, none of which tried several values of seed.'
    """
    frame = table.frame
    _check_columns(table, columns, target)
    ended = frame[(last_status(frame) == FINISHED) & frame[target].notna()]
    last = last_rows(ended)
    if last.empty:
        raise InputError(f"{table.source}: no finished run has a value of {target}.")
    fixed = [name for name in _of_a_cell(frame) if name not in columns]
    groups = last.groupby(fixed, sort=False, dropna=False)
    best = last.loc[groups[target].idxmin()]
    tried = groups[list(columns)].nunique(dropna=False).max(axis=1)
    notes = [_tried(groups, tried, columns), *_at_edge(last, best, fixed, columns)]
    kept = frame[frame["run_id"].isin(best["run_id"])].reset_index(drop=True)
    return replace(table, frame=kept, notes=(*table.notes, *notes))


def _check_columns(table: RunTable, columns: Sequence[str], target: str) -> None:
    if not columns:
        raise InputError("give the columns that were searched over, such as learning_rate,batch_tokens.")
    names = [str(name) for name in table.frame]
    for name in columns:
        if name not in names:
            raise InputError(f"{table.source}: no column {name!r} to take the best of{nearest_hint(name, names)}.")
        if name.startswith(LOSS_PREFIX) or name in ("run_id", "step"):
            raise InputError(f"{name} is no setting that was tried: name columns such as learning_rate.")
    if target not in table.losses:
        hint = nearest_hint(target, table.losses)
        raise InputError(f"{table.source}: no loss {target!r}{hint}; the losses are {', '.join(table.losses)}.")


def _of_a_cell(frame: pd.DataFrame) -> list[str]:
    """What tells models apart: the description of a run but its name, seed and progress, and known settings."""
    measured = ("run_id", "seed", "step", "status", *(() if frame["step"].isna().all() else ("tokens",)))
    described = [name for name in DESCRIPTION if name not in measured]
    if "tokens" not in described and frame["tokens_planned"].isna().all():
        described.append("tokens")
    return [*described, *(str(name) for name in frame if str(name).lower() in TELLS_APART and name not in described)]


def _tried(groups: Any, tried: pd.Series, columns: Sequence[str]) -> str:
    several, sizes = int((tried > 1).sum()), groups.size()
    cells = f"{len(tried)} cell{'s' if len(tried) > 1 else ''}"
    what = " and ".join(columns)
    if not several:
        return f"{cells}, none of which tried several values of {what}."
    least, most = int(sizes.min()), int(sizes.max())
    runs = f"{least}" if least == most else f"{least} to {most}"
    return f"{cells}, each the best of {runs} runs over {what}; {several} of them tried several values."


def _at_edge(last: pd.DataFrame, best: pd.DataFrame, fixed: list[str], columns: Sequence[str]) -> list[str]:
    """A sentence for each column whose best value is the smallest or largest tried, in how many cells."""
    sentences = []
    for name in columns:
        if not pd.api.types.is_numeric_dtype(last[name]):
            continue
        values = last.groupby(fixed, sort=False, dropna=False)[name]
        low, high = (values.transform(kind).loc[best.index] for kind in ("min", "max"))
        varied = low < high
        at_low, at_high = int((varied & (best[name] == low)).sum()), int((varied & (best[name] == high)).sum())
        if at_low or at_high:
            ends = [f"{count} at the {end}" for count, end in ((at_low, "smallest"), (at_high, "largest")) if count]
            sentences.append(
                f"the best {name} lies on the edge of what was tried in {at_low + at_high} of {int(varied.sum())} "
                f"cells ({', '.join(ends)}): a value beyond may be better."
            )
    return sentences
