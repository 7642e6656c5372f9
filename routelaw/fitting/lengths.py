"""How long the runs of a fit were trained: one length for a law that knows none, every length for a law in tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.fitting.noise import SAME_LENGTH
from routelaw.laws.law import Law
from routelaw.runs.table import RunTable, last_rows

FEWEST_TOKENS, MOST_TOKENS = 0.01, 1e5
"""Tokens per active parameter outside of which one of the two is probably in another unit."""
MOSTLY = 0.5
"""Share of the models from which on a table is one of several lengths."""

Keep = Callable[[pd.DataFrame, "pd.Series", str, list[str]], pd.DataFrame]


def reads_length(law: Law | None) -> bool:
    """Whether a law tells long trainings from short ones at their end."""
    return law is not None and not law.along_training and "tokens" in law.inputs


def several_lengths(table: RunTable) -> bool:
    """Whether a table's runs were trained for several lengths throughout, as those behind laws in tokens are.

    A study of the paper's kind has one length, and perhaps a few runs beside it.
    """
    last = last_rows(table.frame)
    tokens = last["tokens"].dropna().astype(float)
    if len(tokens) < len(last) or tokens.empty:
        return False
    commonest = np.array([tokens.between(value / SAME_LENGTH, value * SAME_LENGTH).mean() for value in tokens.unique()])
    return bool(commonest.max() < MOSTLY)


def one_length(frame: pd.DataFrame, left_out: list[str], keep: Keep) -> pd.DataFrame:
    """Runs planned for the same number of tokens: those of the commonest plan.

    Without plans in the table nothing is left out; last evaluations far apart are a warning.
    """
    plans = frame["tokens_planned"]
    if plans.notna().all() and plans.nunique() > 1:
        commonest = plans.mode().max()
        alike = (plans.astype(float) / float(commonest)).between(1 / SAME_LENGTH, SAME_LENGTH)
        return keep(frame, alike, f"of another length than {commonest:.4g} tokens", left_out)
    return frame


def along_training(frame: pd.DataFrame, law: Law, source: str, left_out: list[str]) -> pd.DataFrame:
    """The evaluations after the first step, for a law of training curves."""
    if frame["step"].isna().any():
        raise InputError(f"{source}: law {law.name} follows training and the table has no column step.")
    if (frame["step"] == 0).any():
        left_out.append("evaluations before the first step")
    frame = frame[frame["step"] > 0]
    if "tokens" in law.inputs and (frame["tokens"] <= 0).any():
        run = frame["run_id"][(frame["tokens"] <= 0).fillna(False)].iloc[0]
        raise InputError(f"{source}: run {run} has 0 tokens after its first step: law {law.name} reads them.")
    return frame


def lengths_apart(frame: pd.DataFrame) -> list[str]:
    """A warning where runs were trained for quite different lengths, or some of them not to their end."""
    sentences = []
    lengths = {name: frame[name].dropna().astype(float) for name in ("step", "tokens")}
    if lengths["step"].empty or lengths["tokens"].size:
        del lengths["step"]  # tokens say it better: batches may differ
    for name, values in lengths.items():
        if values.size and values.max() > SAME_LENGTH * max(values.min(), 1):
            least, most = values.min(), values.max()
            range_ = f"from step {least:g} to {most:g}" if name == "step" else f"from {least:.3g} to {most:.3g} tokens"
            sentences.append(
                f"the last evaluations range {range_}: lengths of training are mixed, and the law knows of none."
            )
    return sentences


def check_tokens(frame: pd.DataFrame, law: Law, source: str) -> list[str]:
    """Refuse rows without tokens for a law that reads them; warnings where they are hard to believe."""
    where = f"{source}: " if source else ""
    tokens = frame["tokens"].astype(float)
    if tokens.isna().any():
        lacking = "no run has" if tokens.isna().all() else f"run {frame['run_id'][tokens.isna()].iloc[0]} lacks"
        raise InputError(f"{where}law {law.name} needs the column tokens, which {lacking}.")
    if (tokens <= 0).any():
        run = frame["run_id"][tokens <= 0].iloc[0]
        raise InputError(f"{where}run {run} has 0 tokens: law {law.name} reads the tokens that a run was trained on.")
    warnings = []
    ratio = tokens / frame["active_params"]
    odd = ~ratio.between(FEWEST_TOKENS, MOST_TOKENS)
    if odd.any():
        run, value = frame["run_id"][odd].iloc[0], ratio[odd].iloc[0]
        others = f", as {int(odd.sum()) - 1} more have" if odd.sum() > 1 else ""
        warnings.append(
            f"run {run} has {value:.3g} tokens per active parameter{others}: are tokens in thousands or millions? Laws "
            "take the number of tokens itself."
        )
    if tokens.max() <= SAME_LENGTH * tokens.min():
        warnings.append(
            f"all runs were trained on {tokens.median():.4g} tokens: they do not determine what law {law.name} says of "
            "other lengths."
        )
    planned = frame["tokens_planned"].astype(float)
    short = planned.notna() & (tokens * SAME_LENGTH < planned)
    if short.any():
        warnings.append(
            f"{int(short.sum())} runs end before the tokens they were planned for: under a decaying learning rate "
            "their losses lie above those of runs planned for that length."
        )
    return warnings
