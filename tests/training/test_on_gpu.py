"""bfloat16 on a GPU with float32 masters: it learns, resumes, and may go on on a CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_run import Stopped, stop_after
from tiny_runs import EXECUTION, ROUTERS, make_spec

from routelaw.corpus import Corpus
from routelaw.specs.architecture import Architecture
from routelaw.training.run import run

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
GPU = replace(EXECUTION, device="cuda", threads=0)


@pytest.mark.parametrize("name", ROUTERS)
def test_learns_and_continues(tiny_corpus: Corpus, tmp_path: Path, name: str) -> None:
    spec = make_spec(tiny_corpus, name, steps=40, learning_rate=1e-2)
    spec = replace(spec, model=replace(spec.model, architecture=Architecture(64, 2, 2, 32)))
    whole = run(spec, GPU, tiny_corpus, tmp_path / "whole")
    assert whole.loss_validation < 4.5
    for folder, then in (("again", GPU), ("cpu", replace(GPU, device="cpu"))):
        with pytest.raises(Stopped):
            run(spec, GPU, tiny_corpus, tmp_path / folder, observe=stop_after(17))
        result = run(spec, then, tiny_corpus, tmp_path / folder)
        assert result.loss_validation == pytest.approx(whole.loss_validation, abs=0.1)
