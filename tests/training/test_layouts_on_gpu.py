"""The same layouts over NCCL, in float32 and bfloat16: on as many GPUs as there are, and on one by itself.

On a single GPU every team is a group of one: nothing leaves it, yet every exchange, gather and reduction is NCCL's.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from routelaw.distributed.groups import AXES, Group, Meshes, Parallel
from verification.layout_equality import CASES, LayoutCase, compare, gaps, layouts_of, spawned, spec_of

pytestmark = pytest.mark.filterwarnings("ignore")  # compiling, torch warns of itself
MOST = {torch.float32: 2e-4, torch.bfloat16: 3e-2}
"""Largest difference of losses: sums are made in another order on a GPU each time."""


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("cpu", torch.float32),
        pytest.param("cuda", torch.float32, marks=pytest.mark.gpu),
        pytest.param("cuda", torch.bfloat16, marks=pytest.mark.gpu),
    ],
    ids=str,
)
def test_groups_of_one(device: str, dtype: torch.dtype) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    backend = "nccl" if device == "cuda" else "gloo"
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh(device, (1, 1, 1), mesh_dim_names=AXES)
        batch = mesh["data", "expert"]._flatten("batch")
        teams = (Group(part.get_group(), 0, 1) for part in (batch, mesh["data"], mesh["expert"], mesh["tensor"]))
        parallel, meshes = Parallel(*teams), Meshes(mesh["data"], batch)
        for name, router in CASES.items():
            found = gaps(spec_of(router, 3), parallel, meshes, dtype, 1, torch.device(device), shards=True)
            assert float(found[0]) < MOST[dtype], name
    finally:
        dist.destroy_process_group()


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("dtype", MOST, ids=str)
def test_every_layout_of_the_gpus_that_there_are(dtype: torch.dtype) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    world = 4 if torch.cuda.device_count() >= 4 else 2
    trials = [LayoutCase(layout, 1, dtype, 3) for layout in layouts_of(world)]
    found = spawned(compare, *trials, kind=("cuda",))
    assert len(found) == sum(len(trial.cases) for trial in trials)
    assert not {case: gap for case, gap in found.items() if gap[0] > MOST[dtype]}
