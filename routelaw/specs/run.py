"""What a run is, and its name: the hash of what it means.

Two specs with the same meaning have the same `run_id`, wherever and however they are executed. A field that stands at
the default it had when it was introduced is left out of the hash, so an option added later changes no old id (golden
ids are tested). Where a run happens, how it is laid out and how often it reports is an `ExecutionSpec`: not hashed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any

from routelaw.errors import InputError
from routelaw.specs.architecture import Architecture
from routelaw.specs.counting import Counts, count
from routelaw.specs.placement import routed_positions
from routelaw.specs.techniques import DENSE


@dataclass(frozen=True)
class ModelSpec:
    architecture: Architecture
    """Width, blocks, heads, key size; in a file `size = "0.8M"` stands for all four."""
    vocabulary: int = 32_000
    sequence_length: int = 2048
    positions: str = "xl"
    """xl: Transformer-XL relative positions, the paper's; rope: rotary."""


@dataclass(frozen=True)
class RouterSpec:
    name: str = DENSE
    experts: int = 1
    k: int = 1
    routing_frequency: float = 0.5
    placement: str = "even"
    """even: blocks i·L/n; interior: i·L/(n+1); or block numbers such as "2,4,5"."""
    capacity_factor: float = 2.0
    """C: in training an expert takes at most ⌈C·T·K/E⌉ tokens of a group of T; 0 is dropless."""
    shared_slots: int = 1
    """Experts that share their slots (those of one device, in the paper)."""
    group_tokens: int = 0
    """T: tokens over which Sinkhorn, assignment, capacity and balance act; 0 is one sequence-batch of 8."""
    shuffle_groups: int = 1
    """Groups whose tokens are dealt out anew before assignment; 1 is no shuffle."""
    shared_decisions: bool = False
    ffws_per_expert: int = 1
    balance_weight: float | None = None
    """None is the technique's own default."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of this technique alone; its file declares and checks them."""


@dataclass(frozen=True)
class TrainSpec:
    steps: int
    batch: int = 256
    """Sequences per step."""
    learning_rate: float = 2e-4
    warmup_steps: int = 1500
    start_rate: float = 1e-7
    """Learning rate of step 0."""
    final_share: float = 0.1
    """The cosine ends at this share of the peak, at the last step."""
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.1
    clip: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class RunSpec:
    model: ModelSpec
    router: RouterSpec
    train: TrainSpec
    corpus: str
    """Content hash of the corpus: the same tokens are the same corpus, wherever they lie."""

    def __post_init__(self) -> None:
        check(self)

    @property
    def run_id(self) -> str:
        meaning = json.dumps(meaning_of(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(meaning.encode()).hexdigest()[:12]

    @property
    def counts(self) -> Counts:
        return count(
            self.model.architecture,
            self.router.name,
            self.router.experts,
            k=self.router.k,
            routed=len(self.routed_blocks),
            shared_decisions=self.router.shared_decisions,
            ffws_per_expert=self.router.ffws_per_expert,
            positions=self.model.positions,
            sequence_length=self.model.sequence_length,
            vocabulary=self.model.vocabulary,
        )

    @property
    def routed_blocks(self) -> tuple[int, ...]:
        """Numbers (from 1) of the blocks whose FFW is routed."""
        if self.router.name == DENSE:
            return ()
        return routed_positions(self.model.architecture.blocks, self.router.routing_frequency, self.router.placement)

    @property
    def variant(self) -> str:
        """What else about the routing differs from the technique's defaults, in canonical form; empty for none."""
        main = ("name", "experts", "k", "routing_frequency", "options")
        changed = {k: v for k, v in meaning_of(self.router).items() if k not in main} | self.router.options
        return ",".join(f"{key}={changed[key]}" for key in sorted(changed))

    @property
    def group_tokens(self) -> int:
        """Tokens of a routing group: as asked, else eight sequences or the whole batch if it is smaller."""
        return self.router.group_tokens or min(8, self.train.batch) * self.model.sequence_length


@dataclass(frozen=True)
class ExecutionSpec:
    """How and where a run is carried out. Changes nothing that the run means."""

    device: str = "auto"
    precision: str = "auto"
    """auto: bfloat16 with float32 masters on a GPU, float32 on a CPU. Also float32, float64."""
    threads: int = 0
    """CPU threads; 0 leaves torch's choice. Fixed per run, since sums of different splits differ in the last bit."""
    micro_batches: int = 1
    """A step's batch is split into this many forward passes."""
    evaluate_every: int = 500
    evaluate_tokens: int = 262_144
    log_every: int = 10
    save_every: int = 500
    keep: int = 2
    """Checkpoints kept."""
    compile: bool = False


def meaning_of(value: Any) -> Any:
    """The content of a spec without fields at their defaults: what is hashed."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    content = {}
    for f in fields(value):
        own = getattr(value, f.name)
        default = (
            f.default
            if f.default is not MISSING
            else f.default_factory()
            if f.default_factory is not MISSING
            else MISSING
        )
        if default is MISSING or own != default:
            content[f.name] = meaning_of(own)
    return content


def check(spec: RunSpec) -> None:
    """What must hold between fields, each in one sentence."""
    model, router, train = spec.model, spec.router, spec.train
    positive = {
        "train.steps": train.steps,
        "train.batch": train.batch,
        "train.learning_rate": train.learning_rate,
        "model.sequence_length": model.sequence_length,
        "model.vocabulary": model.vocabulary,
        "router.shuffle_groups": router.shuffle_groups,
        "router.shared_slots": router.shared_slots,
    }
    for name, value in positive.items():
        if value <= 0:
            raise InputError(f"{name} must be above 0, not {value:g}.")
    if model.positions not in ("xl", "rope"):
        raise InputError(f"model.positions is xl or rope, not {model.positions!r}.")
    if router.name == DENSE:
        if router.experts != 1:
            raise InputError(f"a dense model has one expert, not {router.experts}; name a router to have more.")
        return
    batch_tokens = train.batch * model.sequence_length
    block_tokens = spec.group_tokens * router.shuffle_groups
    if spec.group_tokens % model.sequence_length:
        raise InputError(
            f"router.group_tokens = {spec.group_tokens} must be a whole number of sequences of {model.sequence_length}."
        )
    if batch_tokens % block_tokens:
        raise InputError(
            f"a batch of {batch_tokens} tokens does not hold whole shuffle blocks of {block_tokens} "
            f"({router.shuffle_groups} groups of {spec.group_tokens}): change train.batch or router.group_tokens."
        )
    if not 1 <= router.k <= router.experts:
        raise InputError(f"router.k must lie between 1 and experts = {router.experts}, not {router.k}.")
    if router.capacity_factor < 0:
        raise InputError(f"router.capacity_factor must be 0 (dropless) or positive, not {router.capacity_factor:g}.")
    if router.experts % router.shared_slots:
        raise InputError(f"router.shared_slots = {router.shared_slots} must divide experts = {router.experts}.")
    _ = spec.routed_blocks
