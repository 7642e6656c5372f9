"""A step: what it minimises, that splitting the batch changes nothing, and what it reports."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_runs import ROUTERS, make_spec

from routelaw.corpus import Corpus, batch
from routelaw.errors import InputError
from routelaw.model.transformer import Transformer
from routelaw.routers.hashing import Hash
from routelaw.specs.run import RouterSpec, RunSpec
from routelaw.training.optimizer import Optimizer
from routelaw.training.run import check_split
from routelaw.training.state import tell_token_counts
from routelaw.training.step import StepInfo, train_step


def one_step(spec: RunSpec, corpus: Corpus, micro_batches: int, count: int = 1) -> tuple[dict, StepInfo]:
    """In float64, so that only the order of summation differs."""
    model = Transformer(spec)
    tell_token_counts(model, corpus)
    model.double()
    optimizer = Optimizer(model, spec.train)
    for step in range(count):
        tokens = torch.from_numpy(batch(corpus, "train", 0, step, spec.train.batch, spec.model.sequence_length))
        info = train_step(model, optimizer, tokens, spec, step, micro_batches)
    return {name: p.detach().clone() for name, p in model.named_parameters()}, info


DRAWING = {
    "jitter": RouterSpec("s-base", 4, options={"jitter": 0.3}),
    "baseline and nucleus": RouterSpec("rl-r", 4, options={"variant": "BS", "value_layers": 2, "nucleus": 0.6}),
}


@pytest.mark.parametrize("name", [*ROUTERS, *DRAWING])
def test_micro_batches_of_whole_groups_change_nothing(tiny_corpus: Corpus, name: str) -> None:
    spec = make_spec(tiny_corpus, DRAWING.get(name, name), batch=8, weight_decay=0.0)
    whole, info = one_step(spec, tiny_corpus, 1, count=2)
    for pieces in (2, 4):
        split, split_info = one_step(spec, tiny_corpus, pieces, count=2)
        for key, value in whole.items():
            torch.testing.assert_close(split[key], value, rtol=1e-6, atol=1e-9, msg=key)
        assert split_info.loss == pytest.approx(info.loss, rel=1e-12)
        for one, two in zip(info.layers, split_info.layers, strict=True):
            assert two.load == pytest.approx(one.load)
            assert two.dropped == pytest.approx(one.dropped)
            assert two.oversubscribed == pytest.approx(one.oversubscribed)
            assert two.losses == pytest.approx(one.losses)
            assert two.metrics == pytest.approx(one.metrics)


def test_shuffled_blocks_split_whole(tiny_corpus: Corpus) -> None:
    spec = make_spec(tiny_corpus, RouterSpec("s-base", 4, group_tokens=16, shuffle_groups=2), batch=8)
    whole, _ = one_step(spec, tiny_corpus, 1)
    split, _ = one_step(spec, tiny_corpus, 4)
    assert all(torch.allclose(split[key], value, rtol=1e-6, atol=1e-9) for key, value in whole.items())
    plain, _ = one_step(replace(spec, router=replace(spec.router, shuffle_groups=1)), tiny_corpus, 1)
    assert any(not torch.allclose(plain[key], value, rtol=1e-6, atol=1e-9) for key, value in whole.items())
    with pytest.raises(InputError, match="whole routing groups of 32"):
        check_split(spec, 8)


def test_groups_must_be_whole_where_they_matter(tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec(tiny_corpus, "switch", batch=8)
    with pytest.raises(InputError, match="3 micro-batches do not divide a batch of 8"):
        check_split(spec, 3)
    with pytest.raises(InputError, match="a micro-batch of 16 tokens does not hold whole routing groups of 32"):
        check_split(spec, 8)
    check_split(make_spec(tiny_corpus, "dense", batch=8), 8)
    monkeypatch.setattr(Hash, "uses_groups", False, raising=False)
    with pytest.raises(InputError, match="whole routing groups"):
        check_split(make_spec(tiny_corpus, "hash", batch=8), 8)
    dropless = make_spec(tiny_corpus, RouterSpec("hash", 4, capacity_factor=0.0), batch=8)
    check_split(dropless, 8)
    whole, _ = one_step(dropless, tiny_corpus, 1)
    split, _ = one_step(dropless, tiny_corpus, 8)
    assert all(torch.allclose(split[key], value, rtol=1e-6, atol=1e-9) for key, value in whole.items())


def test_the_log_is_of_what_happened(tiny_corpus: Corpus) -> None:
    """Capacity ½: the share dropped is at least half, and exact when the load is known."""
    spec = make_spec(tiny_corpus, RouterSpec("hash", 4, capacity_factor=0.5), batch=8)
    _, info = one_step(spec, tiny_corpus, 2)
    (layer,) = info.layers
    tokens = torch.from_numpy(batch(tiny_corpus, "train", 0, 0, 8, 16))[:, :-1].flatten()
    count_GE = torch.stack([torch.bincount(group % 4, minlength=4) for group in tokens.view(-1, 32)])
    assert layer.load == pytest.approx((count_GE.sum(0) / tokens.numel()).tolist())
    kept = count_GE.clamp(max=4).sum()  # ⌈½·32/4⌉ = 4 of each group and expert
    assert layer.dropped == pytest.approx(1 - float(kept) / tokens.numel())
    assert layer.oversubscribed == pytest.approx(float((count_GE - 8).clamp(min=0).sum()) / tokens.numel())
    assert 0 < layer.load_entropy < 1
    assert info.dropped == layer.dropped


def test_every_layer_reports_its_routers_figures(tiny_corpus: Corpus) -> None:
    wanted = {
        "hash": (set(), {"entropy"}),
        "switch": ({"balance"}, {"entropy"}),
        "s-base": ({"balance"}, {"entropy", "sinkhorn_iterations", "sinkhorn_violation"}),
        "base": ({"balance"}, {"entropy"}),
        "rl-r": ({"balance", "reward", "baseline_error", "policy", "value", "entropy"}, {"entropy"}),
    }
    for name, (losses, metrics) in wanted.items():
        spec = make_spec(tiny_corpus, replace(ROUTERS[name], routing_frequency=1.0))
        _, info = one_step(spec, tiny_corpus, 1)
        assert [layer.block for layer in info.layers] == [1, 2]
        for layer in info.layers:
            assert losses <= layer.losses.keys(), name
            assert metrics <= layer.metrics.keys(), name
    assert info.layers[0].losses["reward"] == pytest.approx(-info.loss)
