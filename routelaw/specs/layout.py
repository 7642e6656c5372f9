"""How one run is spread over processes: data × expert × tensor. It changes nothing that the run means.

The batch is split over data × expert; the experts of a layer over `expert`; heads and hidden units over `tensor`. Ranks
are numbered with tensor fastest, so that those who talk most sit next to each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from routelaw.errors import InputError
from routelaw.specs.names import nearest_hint

if TYPE_CHECKING:
    from routelaw.specs.run import ExecutionSpec, RunSpec

GIVEN, AUTO = "given", "auto"


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

    @property
    def name(self) -> str:
        return f"{self.data}×{self.expert}×{self.tensor}"

    def __str__(self) -> str:
        return f"{self.name} (data × expert × tensor)"


def check_choice(execution: ExecutionSpec) -> None:
    """Who chooses the layout, and that nothing is said which then has no effect."""
    way = execution.layout
    if way not in (GIVEN, AUTO):
        raise InputError(f"execution.layout is {GIVEN} or {AUTO}, not {way!r}{nearest_hint(way, (GIVEN, AUTO))}.")
    if way == GIVEN:
        for name in ("device_kind", "devices"):
            if getattr(execution, name) is not None:
                raise InputError(f'execution.{name} has no effect without execution.layout = "{AUTO}": leave it out.')
        return
    for name in ("data", "expert", "tensor", "micro_batches"):
        if getattr(execution, name) != 1:
            raise InputError(f'execution.layout = "{AUTO}" chooses {name}: leave execution.{name} out.')
    if execution.device == "cpu":
        raise InputError(f'execution.layout = "{AUTO}" plans for GPUs, and execution.device is cpu: leave one out.')
    if execution.devices is not None and execution.devices < 1:
        raise InputError(f"execution.devices must be at least 1, not {execution.devices}.")


def check_layout(spec: RunSpec, layout: Layout, micro_batches: int, groups_matter: bool = True) -> None:
    """Each thing that does not divide, in one sentence. `groups_matter` is false of a model that routes every token by
    itself and drops none."""
    for name in ("data", "expert", "tensor"):
        if getattr(layout, name) < 1:
            raise InputError(f"execution.{name} must be at least 1, not {getattr(layout, name)}.")
    _check_experts(spec, layout)
    _check_tensor(spec, layout)
    _check_batch(spec, layout, micro_batches)
    if spec.routed_blocks and groups_matter:
        _check_groups(spec, layout, micro_batches)


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
    batch, parts = spec.train.batch, layout.batch * micro_batches
    if micro_batches < 1:
        raise InputError(f"execution.micro_batches must be at least 1, not {micro_batches}.")
    if batch % parts == 0:
        return
    if layout.batch == 1:
        raise InputError(f"{micro_batches} micro-batches do not divide a batch of {batch} sequences.")
    pieces = f" and {micro_batches} micro-batches" if micro_batches > 1 else ""
    raise InputError(f"a batch of {batch} sequences cannot be split evenly over {layout.batch} processes{pieces}.")


def _check_groups(spec: RunSpec, layout: Layout, micro_batches: int) -> None:
    """A process holds whole routing groups, and all processes together whole shuffle blocks, which may span some of
    them."""
    together = spec.train.batch // micro_batches * spec.model.sequence_length
    own = together // layout.batch
    if together % spec.block_tokens:
        raise InputError(
            f"a micro-batch of {together} tokens does not hold whole routing groups of {spec.block_tokens}: "
            f"take fewer micro-batches, or a smaller router.group_tokens (which changes what the run is)."
        )
    if own % spec.group_tokens or max(own, spec.block_tokens) % min(own, spec.block_tokens):
        raise InputError(
            f"each of {layout.batch} processes has {own} tokens of a micro-batch, which are not whole routing groups "
            f"of {spec.group_tokens}{_shuffled(spec)}: take fewer processes or micro-batches, or a smaller "
            f"router.group_tokens (which changes what the run is)."
        )
    if own < spec.block_tokens and spec.router.options.get("credit") == "sequence":
        raise InputError(
            "credit by sequence needs whole sequences where they are routed, and this shuffle deals them out to other "
            "processes: take fewer processes, or smaller router.shuffle_groups (which changes what the run is)."
        )


def _shuffled(spec: RunSpec) -> str:
    return f", or not even parts of shuffled blocks of {spec.block_tokens}" if spec.router.shuffle_groups > 1 else ""
