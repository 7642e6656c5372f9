"""A plugin's router that returns what no router may is refused before anything is trained, by a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from calling import command
from tiny_runs import make_spec, tiny_corpus

from routelaw.corpus import Corpus
from routelaw.errors import InputError
from routelaw.plugins import router_file
from routelaw.routers.router import check_router, load_router
from routelaw.specs.run import RouterSpec

__all__ = ["command", "tiny_corpus"]

ROUTER = """
import sys, torch
from routelaw.routers.router import Router, Routing, register

@register("odd")
class Odd(Router):
    def route(self, x_TD, token_ids_T, ctx):
        token_N = torch.arange(len(token_ids_T)).repeat_interleave(self.k)
        expert_N = (token_N + torch.arange(self.k).repeat(len(token_ids_T))) % self.experts
        weight_N, aux, metrics = None, {}, {}
        ROUTE
        return Routing(token_N, expert_N, weight_N, aux, metrics)

    def losses(self, routing, kept_N, token_nll_T):
        LOSSES
        return {}
"""
WRONG = {
    "nothing": ("return None", ""),
    "a tuple": ("return token_N, expert_N, None", ""),
    "a generator": ("return (n for n in range(3))", ""),
    "an expert beyond E": ("expert_N = expert_N + self.experts", ""),
    "a negative expert": ("expert_N = expert_N - 1", ""),
    "floats for experts": ("expert_N = expert_N.float()", ""),
    "a token beyond T": ("token_N = token_N + 1", ""),
    "too few": ("token_N, expert_N = token_N[1:], expert_N[1:]", ""),
    "none": ("token_N, expert_N = token_N[:0], expert_N[:0]", ""),
    "lengths that differ": ("expert_N = expert_N[1:]", ""),
    "weights of another shape": ("weight_N = torch.ones(3)", ""),
    "whole numbers for weights": ("weight_N = token_N", ""),
    "a metric in words": ("metrics = {'load': 'even'}", ""),
    "a metric of many numbers": ("metrics = {'load': torch.ones(3)}", ""),
    "an error": ("raise ValueError('no [/x] way')", ""),
    "a missing file": ("open('/nowhere')", ""),
    "an exit": ("sys.exit(0)", ""),
    "losses as a number": ("", "return 7"),
    "losses as floats": ("", "return {'balance': (1.0, 2.0)}"),
    "a loss without a weight": ("", "return {'mine': (torch.ones(()), torch.ones(()))}"),
}


def loaded(folder: Path, route: str = "", losses: str = "") -> Path:
    file = folder / "odd.py"
    file.write_text(ROUTER.replace("ROUTE", route or "pass").replace("LOSSES", losses or "pass"))
    return file


def test_a_sound_one_passes(tiny_corpus: Corpus, tmp_path: Path) -> None:
    load_router(loaded(tmp_path))
    for k in (1, 2):
        check_router(make_spec(tiny_corpus, RouterSpec("odd", 4, k=k, plugin=router_file("odd"))))


@pytest.mark.parametrize(("route", "losses"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_one_is_refused(tiny_corpus: Corpus, tmp_path: Path, route: str, losses: str) -> None:
    load_router(loaded(tmp_path, route, losses))
    with pytest.raises(InputError):
        check_router(make_spec(tiny_corpus, RouterSpec("odd", 4, plugin=router_file("odd"))))


def test_nothing_is_left_behind(tiny_corpus: Corpus, tmp_path: Path, command: Callable) -> None:
    file = loaded(tmp_path, "sys.exit(0)")
    words = ("--size", "0.05M", "--router", "odd", "--experts", 4, "--steps", 2, "--batch", 4, "--sequence-length", 16)
    done = command("train", "--corpus", tiny_corpus.path, *words, "--plugin", file, "--out", tmp_path / "run")
    assert done.code == 2
    assert "odd.py, line 11: SystemExit" in done.err
    assert not (tmp_path / "run").exists()
