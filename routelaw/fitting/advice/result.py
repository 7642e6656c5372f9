"""What advice consists of, and how it is written."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from routelaw.fitting.claims import FAILS, HOLDS, OPEN, PARTLY, Effect, JudgedClaim
from routelaw.fitting.intervals import Interval
from routelaw.formatting import html_lines, html_table, number, printable, text_table

WIDTH = 96


@dataclass(frozen=True)
class AdviceTable:
    title: str
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Recommendation:
    """One recommendation of the paper, as statements about these runs."""

    number: int
    """The paper's."""
    title: str
    paper: str
    """The paper's words."""
    findings: tuple[JudgedClaim, ...]
    tables: tuple[AdviceTable, ...] = ()
    remarks: tuple[str, ...] = ()
    """Where the runs disagree with the paper or with each other, and what else a reader must know."""
    numbers: dict[str, Any] = field(default_factory=dict)
    """What the tables show, for programs."""
    decided_by: tuple[str, ...] = ()
    """The findings that say what the paper says, by the names of their claims; all, if empty."""

    @property
    def verdict(self) -> str:
        """That of these findings together: `holds in part` where some hold and others do not, or cannot be told."""
        decisive = [f for f in self.findings if not self.decided_by or f.claim.name in self.decided_by]
        verdicts = {finding.verdict for finding in decisive}
        if len(verdicts) == 1:
            return verdicts.pop()
        return PARTLY if verdicts & {HOLDS, PARTLY} else FAILS if FAILS in verdicts else OPEN

    def as_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "title": self.title,
            "paper": self.paper,
            "verdict": self.verdict,
            "decided_by": list(self.decided_by or (finding.claim.name for finding in self.findings)),
            "findings": [finding.as_dict() for finding in self.findings],
            "remarks": list(self.remarks),
            **self.numbers,
        }


@dataclass(frozen=True, eq=False)
class Advice:
    """The paper's six recommendations to practitioners, judged on a table of runs.

    Printed it is a page of text; in a notebook, too.

    >>> advice = rl.advise(table)
    >>> [recommendation.number for recommendation in advice.recommendations]
    [1, 2, 3, 4, 5, 6]
    >>> advice.recommendations[3].verdict  # all of these runs have one K and one R
    'cannot tell'
    """

    source: str
    target: str
    level: float
    scope: tuple[str, ...]
    """At what scale the advice holds, what was left out and taken as usual, and how much is chance."""
    recommendations: tuple[Recommendation, ...]
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The text, line by line."""
        lines = _wrapped(f"Advice from {self.source} ({self.target}; {100 * self.level:g} % intervals)")
        for sentence in self.scope:
            lines += _wrapped(sentence, "  ")
        for sentence in self.warnings:
            lines += _wrapped(f"! {sentence}", "  ")
        for each in self.recommendations:
            lines += ["", f"{each.number}. {each.title}: {each.verdict}", *_wrapped(f"Paper: “{each.paper}”", "   ")]
            for finding in each.findings:
                lines += _wrapped(f"- {finding.verdict}: {sentence_of(finding)}", "   ", "     ")
            for table in each.tables:
                text = text_table(table.header, table.rows).splitlines()
                lines += [*_wrapped(f"{table.title}:", "   "), *(f"     {line}" for line in text)]
            for remark in each.remarks:
                lines += _wrapped(f"! {remark}", "   ", "     ")
        return lines

    def _repr_html_(self) -> str:
        parts = [html_lines([f"Advice from {self.source}", *self.scope, *self.warnings])]
        for each in self.recommendations:
            findings = [f"{finding.verdict}: {sentence_of(finding)}" for finding in each.findings]
            parts.append(html_lines([f"{each.number}. {each.title}: {each.verdict}", each.paper, *findings]))
            parts += [html_lines([table.title]) + html_table(table.header, table.rows) for table in each.tables]
            parts.append(html_lines(each.remarks))
        return "".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """What `routelaw advise --json` prints."""
        return {
            "source": self.source,
            "target": self.target,
            "level": self.level,
            "scope": list(self.scope),
            "warnings": list(self.warnings),
            "recommendations": [each.as_dict() for each in self.recommendations],
        }


def _wrapped(text: str, indent: str = "", further: str | None = None) -> list[str]:
    return textwrap.wrap(
        printable(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def sentence_of(finding: JudgedClaim) -> str:
    """The statement, and the numbers behind its verdict."""
    return f"{finding.claim.statement}. {finding.why}".strip()


def shown(effect: Effect, sign: str = "") -> str:
    """A percentage and its interval, where there is one."""
    value = f"{effect.value:{sign}.2f} %"
    if not (math.isfinite(effect.low) or math.isfinite(effect.high)):
        return value
    low = f"[{effect.low:.2f}" if math.isfinite(effect.low) else "(…"
    high = f"{effect.high:.2f}]" if math.isfinite(effect.high) else "…)"
    return f"{value} {low}, {high}"


def shown_interval(value: float, interval: Interval | None) -> str:
    if interval is None:
        return number(value, 3)
    low = "(…" if interval.open_low else f"[{number(interval.low, 3)}"
    return f"{number(value, 3)} {low}, {'…)' if interval.open_high else f'{number(interval.high, 3)}]'}"


def listed(items: Iterable[str], most: int = 6) -> str:
    """Names in a sentence; of many the first."""
    names = list(items)
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
