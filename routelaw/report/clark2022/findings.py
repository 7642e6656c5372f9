"""What was found, in words. Every figure in these sentences is read from the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from routelaw.report.clark2022 import printed
from routelaw.report.clark2022.laws_compared import row_of
from routelaw.report.clark2022.verdict import (
    CLOSE,
    DIFFERS,
    HOLDS,
    MATCHES,
    NOT_REPRODUCIBLE,
    NOT_SUPPORTED,
    PARTLY,
    ResultTable,
    size_text,
)

RANKINGS = ("ranking_s_base", "ranking_rl_r", "ranking_hash")


def totals(tables: Mapping[str, ResultTable]) -> Counter[str]:
    return sum((Counter(table.counts()) for table in tables.values()), Counter())


def findings(tables: Mapping[str, ResultTable]) -> list[str]:
    return [_numbers(tables), _conventions(tables), _coefficients(tables), _better_laws(tables), _limits(tables)]


def _numbers(tables: Mapping[str, ResultTable]) -> str:
    count = totals(tables)
    numbers = sum(count[v] for v in (MATCHES, CLOSE, DIFFERS, NOT_REPRODUCIBLE))
    statements = sum(count[v] for v in (HOLDS, PARTLY, NOT_SUPPORTED))
    return (
        f"Of {numbers} printed numbers, {count[MATCHES]} come out to the printed digits, {count[CLOSE]} are close, "
        f"{count[DIFFERS]} differ and {count[NOT_REPRODUCIBLE]} cannot be computed from the release. Of {statements} "
        f"comparative statements, {count[HOLDS]} hold, {count[PARTLY]} hold in part, and {count[NOT_SUPPORTED]} are "
        f"not supported by the released losses."
    )


def _conventions(tables: Mapping[str, ResultTable]) -> str:
    slopes, transfer = tables["expert_slopes"], [tables[f"transfer_{r}"] for r in ("hash", "s_base", "rl_r")]
    cells = sum(len(t.cells) for t in transfer)
    near = sum(t.counts().get(MATCHES, 0) + t.counts().get(CLOSE, 0) for t in transfer)
    relabelled = [c for c in slopes.cells if "=" in c.column]
    return (
        "Three conventions are not stated in print and decide what comes out. The table of leave-one-out errors "
        "leaves out whole model sizes. The column 25M of the table of b(N) belongs to the 55M model: read so, "
        f"{sum(c.verdict == MATCHES for c in relabelled)} of its {len(relabelled)} numbers match. The transfer table "
        f"is the bilinear law on routed runs alone, with errors in nats: {near} of its {cells} numbers for routers "
        f"then match or are close."
    )


def _coefficients(tables: Mapping[str, ResultTable]) -> str:
    held, optimum, statements = tables["saturation_held"], tables["saturated_optimum"], tables["claims"]
    hash_held = [c for c in held.cells if c.row == "HASH"]
    maxima = ", ".join(f"{optimum.cell(r, 'e_max').ours:.0f}" for r in printed.ROUTERS.values())
    unsupported = [c.row for c in statements.cells if c.verdict == NOT_SUPPORTED]
    listed = "; ".join(f"“{row}”" for row in unsupported)
    return (
        f"The six printed coefficients are not the optimum on the released runs (E_max there: {maxima}), yet fit them "
        f"almost equally well; with the printed saturation held, {sum(c.verdict == MATCHES for c in hash_held)} of "
        f"HASH's {len(hash_held)} other coefficients match. The coefficients are known less well than their digits "
        f"suggest, and these statements do not follow from the data: {listed}."
    )


def _better_laws(tables: Mapping[str, ResultTable]) -> str:
    def errors(law: str) -> str:
        found = [tables[t].cell(row_of(law), "leave-size-out") for t in RANKINGS]
        return "/".join(c.shown(c.ours) for c in found)

    best = [tables[t].cells[0].row.split(" (")[0] for t in RANKINGS]
    names = ", ".join(f"{law} for {label}" for law, label in zip(best, printed.ROUTERS.values(), strict=True))
    return (
        f"Judged by a size it has not seen, the paper's law errs by {errors('saturated')}e-4 in log10 L "
        f"(S-BASE/RL-R/HASH). The same number of parameters spent on an irreducible loss instead of an interaction "
        f"gives {errors('irreducible')}e-4. Lowest of all the laws tried: {names}."
    )


def _limits(tables: Mapping[str, ResultTable]) -> str:
    cut = tables["n_cut_by_law"]
    spans = []
    for label in printed.ROUTERS.values():
        cell = cut.cell("saturated", label)
        assert cell.ours is not None
        assert cell.low is not None
        assert cell.high is not None
        spans.append(f"{label} {size_text(cell.ours)} ({size_text(cell.low)} to {size_text(cell.high)})")
    endless = sorted({c.row for c in cut.cells if c.ours == float("inf")})
    return (
        f"N_cut, the size beyond which routing would stop helping, is {', '.join(spans)} under the paper's law, with "
        f"90 % intervals. Under {' and '.join(endless)} it does not exist. It is far outside the sizes trained, and "
        f"no law here is entitled to it."
    )
