"""How one run is spread over processes: data × expert × tensor. It changes nothing that the run means.

The batch is split over data × expert; the experts of a layer over `expert`; heads and hidden units over `tensor`. Ranks
are numbered with tensor fastest, so that those who talk most sit next to each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from routelaw.errors import InputError
from routelaw.specs.run import RunSpec


@dataclass(frozen=True)
class Layout:
    data: int = 1
    expert: int = 1
    tensor: int = 1

    @property
    def world(self) -> int:
        return self.data * self.expert * self.tensor

    @property
    def batch(self) -> int:
        """Processes that each hold a part of the batch."""
        return self.data * self.expert

    def __str__(self) -> str:
        return f"{self.data}×{self.expert}×{self.tensor} (data × expert × tensor)"


def check_layout(spec: RunSpec, layout: Layout, micro_batches: int) -> None:
    """Each thing that does not divide, in one sentence."""
    for name in ("data", "expert", "tensor"):
        if getattr(layout, name) < 1:
            raise InputError(f"execution.{name} must be at least 1, not {getattr(layout, name)}.")
    _check_experts(spec, layout)
    _check_tensor(spec, layout)
    _check_batch(spec, layout, micro_batches)


def _check_experts(spec: RunSpec, layout: Layout) -> None:
    if layout.expert > 1 and not spec.routed_blocks:
        raise InputError(f"a dense model has no experts to spread over {layout.expert} processes: use data or tensor.")
    if spec.router.experts % layout.expert:
        raise InputError(f"{spec.router.experts} experts cannot be spread evenly over {layout.expert} processes.")


def _check_tensor(spec: RunSpec, layout: Layout) -> None:
    architecture = spec.model.architecture
    for what, count in (("heads", architecture.heads), ("hidden units", 4 * architecture.d_model)):
        if count % layout.tensor:
            raise InputError(f"{count} {what} cannot be split evenly over {layout.tensor} tensor-parallel processes.")


def _check_batch(spec: RunSpec, layout: Layout, micro_batches: int) -> None:
    """A process holds whole sequences and whole routing groups; a shuffle block may span processes, evenly."""
    parts = layout.batch * micro_batches
    if spec.train.batch % parts:
        raise InputError(
            f"a batch of {spec.train.batch} sequences cannot be split over {layout.batch} processes in {micro_batches} "
            f"micro-batches: {parts} does not divide it."
        )
