"""Changing tokens from t on leaves everything before t alone in evaluation; in training the leak is a number."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from tiny_models import NAMES, model_of, spec_of, tokens

from routelaw.evaluation.causality import audit
from routelaw.model import experts as experts_module
from routelaw.specs.run import RunSpec

EVERY_CUT = range(1, 32, 5)


def longer(name: str, experts: int = 4, **options: object) -> RunSpec:
    spec = spec_of(name, experts, **options)
    return replace(spec, model=replace(spec.model, sequence_length=32))


def row_by_row(x_ND: torch.Tensor, weight_EDF: torch.Tensor, offsets_E: torch.Tensor) -> torch.Tensor:
    """Every row multiplied on its own: no last bit can depend on what else an expert was given."""
    ends = [0, *offsets_E.tolist()]
    rows = [x_ND[n : n + 1] @ weight_EDF[e] for e, (a, b) in enumerate(pairwise(ends)) for n in range(a, b)]
    return torch.cat([*rows, x_ND.new_zeros(len(x_ND) - ends[-1], weight_EDF.shape[2])])


@pytest.mark.parametrize(("k", "positions"), [(1, "xl"), (2, "rope")])
@pytest.mark.parametrize("name", NAMES)
def test_evaluation_is_causal_exactly(monkeypatch: pytest.MonkeyPatch, name: str, k: int, positions: str) -> None:
    monkeypatch.setattr(experts_module, "_is_eager_on_cpu", lambda x: False)
    monkeypatch.setattr(experts_module, "grouped_product", row_by_row)
    model = model_of(longer(name, k=k, positions=positions, capacity_factor=0.5))
    found = audit(model, tokens(2, 32), EVERY_CUT)
    assert found.causal
    assert (found.evaluation.decisions, found.evaluation.outputs, found.evaluation.nats) == (0, 0, 0)


@pytest.mark.parametrize("name", ["dense", *NAMES])
def test_products_over_other_rows_differ_by_rounding_alone(name: str) -> None:
    found = audit(model_of(spec_of() if name == "dense" else longer(name, k=2)), tokens(2, 32), EVERY_CUT)
    assert found.causal
    assert found.evaluation.decisions == 0
    assert found.evaluation.outputs < 1e-12


def test_only_assignments_over_a_group_or_its_capacity_leak_in_training() -> None:
    leaks = {}
    for name in NAMES:
        for capacity in (0.0, 1.0):
            leaks[name, capacity] = audit(model_of(longer(name, capacity_factor=capacity)), tokens(4, 32)).training
    for name in ("hash", "switch", "rl-r"):
        assert leaks[name, 0.0].decisions == 0
        assert leaks[name, 0.0].outputs < 1e-12
    for name in ("s-base", "base"):
        assert leaks[name, 0.0].decisions > 0.01
        assert leaks[name, 0.0].outputs > 1e-3
        assert leaks[name, 0.0].nats > 0
    assert leaks["switch", 1.0].decisions > 0  # who is dropped depends on who else came


def test_the_model_is_left_as_it_was() -> None:
    model = model_of(longer("s-base"))
    for training in (True, False):
        model.train(training)
        audit(model, tokens(2, 32))
        assert model.training is training
