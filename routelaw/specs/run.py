"""What a run is, and its name: the hash of what it means.

Two specs with the same meaning have the same `run_id`, wherever and however they are executed. A field that stands at
the default it had when it was introduced is left out of the hash, so an option added later changes no old id (golden
ids are tested). Where a run happens, how it is laid out and how often it reports is an `ExecutionSpec`: not hashed.

What is spelled out is part of the meaning: a balance weight or an option written down at the value that the technique
would use anyway gives another id than leaving it out. Only the technique's file knows those values, ids must not
need it, and a number written down stays what it is if the technique's default ever changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any

from routelaw.errors import InputError
from routelaw.specs.consistency import check
from routelaw.specs.counting import Architecture, Counts, canonical_placement, count, routed_positions
from routelaw.specs.layout import GIVEN, Layout
from routelaw.specs.names import DENSE, canonical_router
from routelaw.specs.recipes import recipe_named
from routelaw.specs.sizes import size_label

PLUGIN_DIGITS = 8
"""Digits of a plugin's hash in the name of a variant: versions of a router are never fitted together unasked."""
MOST_VALUE_LAYERS = 100
USUAL_GROUP = 8
"""Sequences in a routing group that nobody asked for otherwise."""
NAMING = {"only for names": True}
"""Marks a field that says how a run is named and nothing of what it is."""


@dataclass(frozen=True)
class ModelSpec:
    """What a model is, apart from its router.

    >>> rl.ModelSpec(rl.get_size("0.2M"), sequence_length=64).architecture.d_model
    64
    """

    architecture: Architecture
    """Width, blocks, heads, key size; in a file `size = "0.8M"` stands for all four."""
    vocabulary: int = 32_000
    """Tokens of the tokenizer; filled in from the corpus unless given."""
    sequence_length: int = 2048
    """Tokens in a sequence: the context of training and evaluation."""
    positions: str = "xl"
    """xl: Transformer-XL relative positions, the paper's; rope: rotary."""


@dataclass(frozen=True)
class RouterSpec:
    """How tokens find their experts.

    >>> rl.RouterSpec("S-Base", experts=8).name
    's-base'
    """

    name: str = DENSE
    """The routing technique, or dense for a model without experts."""
    experts: int = 1
    """E: experts in each routed block."""
    k: int = 1
    """K: experts that a token visits in each routed block."""
    routing_frequency: float = 0.5
    """R: share of the blocks whose FFW is routed."""
    placement: str = "even"
    """Which blocks are routed. even: i·L/n; interior: i·L/(n+1); or numbers such as "2,4,5", which then give R."""
    capacity_factor: float = 2.0
    """C: in training an expert takes at most ⌈C·T·K/E⌉ tokens of a group of T; 0 is dropless."""
    shared_slots: int = 1
    """Experts that share their slots (those of one device, in the paper)."""
    group_tokens: int = 0
    """T: tokens over which Sinkhorn, assignment, capacity and balance act; 0 is at most 8 sequences, by the batch."""
    shuffle_groups: int = 1
    """Groups that exchange tokens at random before assignment; 1 is no shuffle."""
    shared_decisions: bool = False
    """Every routed block uses the experts and weights that the first one chose."""
    ffws_per_expert: int = 1
    """FFWs in a row that make up one expert, each with its own LayerNorm and residual connection."""
    balance_weight: float | None = None
    """Weight of the balance loss; None is the technique's own default."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of this technique alone; its file declares and checks them."""
    plugin: str = ""
    """sha256 of the file that a router of one's own was loaded from; filled in, not to be written by hand."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", canonical_router(self.name))
        object.__setattr__(self, "placement", canonical_placement(self.placement))

    @property
    def value_layers(self) -> int:
        """Hidden layers of the network that learns a baseline in variants B (the default) and BS of rl-r; else 0."""
        if self.name != "rl-r" or self.options.get("variant", "B") not in ("B", "BS"):
            return 0
        layers = self.options.get("value_layers", 1)
        if not isinstance(layers, int) or isinstance(layers, bool) or not 1 <= layers <= MOST_VALUE_LAYERS:
            raise InputError(
                f"router.options.value_layers must be a whole number from 1 to {MOST_VALUE_LAYERS}, not {layers!r}."
            )
        return layers


@dataclass(frozen=True)
class TrainSpec:
    """How long and how a model is trained.

    >>> rl.TrainSpec(steps=500, batch=32, learning_rate=3e-3).seed
    0
    """

    steps: int
    """Optimizer steps."""
    batch: int = 256
    """Sequences per step."""
    learning_rate: float = 2e-4
    """Peak of the learning rate, reached after the warm-up."""
    warmup_steps: int = 1500
    """Steps in which the learning rate rises to its peak; at most a tenth of the run."""
    start_rate: float = 1e-7
    """Learning rate of step 0."""
    final_share: float = 0.1
    """The cosine ends at this share of the peak, at the last step."""
    beta1: float = 0.9
    """Decay of AdamW's mean of gradients."""
    beta2: float = 0.95
    """Decay of AdamW's mean of squared gradients."""
    weight_decay: float = 0.1
    """Weight decay of AdamW, decoupled from the gradient."""
    clip: float = 1.0
    """Largest norm of the gradient; a larger one is scaled down to it."""
    seed: int = 0
    """Seed of initial weights, batches and everything that a router draws."""


@dataclass(frozen=True)
class RunSpec:
    """What a run is: model, router, training and the content hash of its corpus. Its `run_id` is the hash of all that.

    >>> model = rl.ModelSpec(rl.get_size("0.05M"), vocabulary=320, sequence_length=16)
    >>> corpus = rl.open_corpus("corpus")
    >>> spec = rl.RunSpec(model, rl.RouterSpec("hash", experts=4), rl.TrainSpec(steps=2, batch=2), corpus.id)
    >>> spec.counts.active_params, len(spec.run_id)
    (53760, 12)
    >>> rl.train(spec, corpus)
    Training(hash 0.05M E=4, 2 steps, in runs/...)
    """

    model: ModelSpec
    router: RouterSpec
    train: TrainSpec
    corpus: str
    """Content hash of the corpus: the same tokens are the same corpus, wherever they lie."""
    recipe: str = field(default="", metadata=NAMING)
    """The recipe that `variant` is relative to (specs/recipes.py): no part of the id. Left out where it says no more
    about this router than the defaults do."""

    def __post_init__(self) -> None:
        if self.recipe and not _beyond_defaults(recipe_named(self.recipe, "recipe").router(self.router.name)):
            object.__setattr__(self, "recipe", "")
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
            value_layers=self.router.value_layers,
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
    def routing_frequency(self) -> float:
        """R as it came out: of the blocks named where a placement names them, else as asked."""
        if self.router.placement in ("even", "interior") or self.router.name == DENSE:
            return self.router.routing_frequency
        return len(self.routed_blocks) / self.model.architecture.blocks

    @property
    def variant(self) -> str:
        """What else about the model differs from the technique's defaults, or from its recipe, in canonical form; empty
        for nothing.

        `shared_decisions`, `capacity_factor=1,shared_slots=4`, `placement=2+4+5`: in alphabetical order.
        """
        main = ("name", "experts", "k", "routing_frequency", "options")
        changed = {k: v for k, v in meaning_of(self.router).items() if k not in main}
        if self.recipe:
            for name, value in recipe_named(self.recipe, "recipe").router(self.router.name).items():
                changed[name] = meaning_of(getattr(self.router, name))
                if changed[name] == meaning_of(value):
                    del changed[name]
        changed |= meaning_of(self.router.options)
        changed |= {k: v for k, v in meaning_of(self.model).items() if k == "positions"}
        if self.router.plugin:
            changed["plugin"] = self.router.plugin[:PLUGIN_DIGITS]
        return named_settings(changed)

    def tokens_after(self, steps: int) -> int:
        return steps * self.train.batch * self.model.sequence_length

    @property
    def block_tokens(self) -> int:
        """Tokens that the processes of a run must hold together: the groups of a shuffle."""
        return self.group_tokens * self.router.shuffle_groups

    @property
    def group_tokens(self) -> int:
        """Tokens of a routing group: as asked, else as many sequences up to eight as leave whole groups."""
        if self.router.group_tokens:
            return self.router.group_tokens
        together = max(self.train.batch // max(self.router.shuffle_groups, 1), 1)
        sequences = next(n for n in range(USUAL_GROUP, 0, -1) if together % n == 0)
        return sequences * self.model.sequence_length


@dataclass(frozen=True)
class ExecutionSpec:
    """How and where a run is carried out. Changes nothing that the run means."""

    device: str = "auto"
    """auto (a GPU if there is one), cpu or cuda."""
    precision: str = "auto"
    """auto: bfloat16 with float32 masters on a GPU, float32 on a CPU. Also float32, float64."""
    threads: int = 0
    """CPU threads; 0 leaves torch's choice. Fixed per run, since sums of different splits differ in the last bit."""
    micro_batches: int = 1
    """Forward passes that a step's batch is split into: more need less memory."""
    evaluate_every: int = 500
    """Steps between evaluations; the last step is always evaluated."""
    evaluate_tokens: int = 262_144
    """Most tokens of each text that an evaluation reads."""
    log_every: int = 10
    """Steps between lines of log.jsonl."""
    save_every: int = 500
    """Steps between checkpoints."""
    keep: int = 2
    """Checkpoints kept; 0 leaves none of a run that has ended, for sweeps that only want losses."""
    optimizer_state_dtype: str = "float32"
    """The type of AdamW's moments: bfloat16 rounds them at random and saves 4 bytes per parameter, on one GPU
    (training/fused_adamw.py). Where E is very large, that is most of what a run needs."""
    recompute: bool = False
    """Blocks keep only their input and are computed again in the backward pass: a forward pass more, for memory."""
    compile: str = "auto"
    """auto, off, blocks or step: what torch compiles (training/compiling.py)."""
    layout: str = "given"
    """given: by data, expert and tensor; auto: these and micro_batches are chosen as `routelaw plan layout` does."""
    device_kind: str | None = None
    """auto: the devices that a layout is planned for, such as a100 or h100; the GPUs of this machine unless given."""
    devices: int | None = None
    """auto: how many of them; as many as there are unless given."""
    data: int = 1
    """Processes, or groups of them, that each train on a part of the batch."""
    expert: int = 1
    """Processes that the experts of a layer are spread over; each takes a part of the batch, too."""
    tensor: int = 1
    """Processes that every head and hidden unit is split over."""
    hang_timeout: float = 600.0
    """Seconds that a run of several processes may stand still before it ends and says which of them is to blame."""

    @property
    def processes(self) -> Layout:
        """How many there are, and how they share the work."""
        if self.layout != GIVEN:
            raise InputError(f'the layout is "{self.layout}": it has to be chosen before anything is reckoned with it.')
        return Layout(self.data, self.expert, self.tensor)


def meaning_of(value: Any) -> Any:
    """The content of a spec without fields at their defaults, as plain values: what is hashed. What only names is none.

    A whole number is the same whether it was written 1 or 1.0.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: meaning_of(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [meaning_of(own) for own in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    content = {f.name: (getattr(value, f.name), default_of(f)) for f in fields(value) if f.metadata != NAMING}
    return {name: meaning_of(own) for name, (own, default) in content.items() if default is MISSING or own != default}


def _beyond_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings of [router] that are not the default of their field."""
    defaults = {f.name: default_of(f) for f in fields(RouterSpec)}
    return {name: value for name, value in settings.items() if value != defaults[name]}


def default_of(f: Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not MISSING else f.default


def named_settings(settings: Mapping[str, Any]) -> str:
    """Settings as one line of text, `name=value,…` in the order of their names: equal settings give equal text."""
    return ",".join(_named(key, settings[key]) for key in sorted(settings))


def _named(key: str, value: Any) -> str:
    if value is True:
        return key
    words = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return f"{key}={words.replace(',', '+')}"


def describe(spec: RunSpec) -> str:
    """A run in a few words: what a table of runs is read by."""
    words = [spec.router.name, size_label(spec.counts.active_params)]
    if spec.routed_blocks:
        words.append(f"E={spec.router.experts}")
        words += [f"K={spec.router.k}"] if spec.router.k > 1 else []
        words += [f"R={spec.routing_frequency:.3g}"] if spec.routing_frequency != 0.5 else []
    words += [spec.variant] if spec.variant else []
    words += [f"seed {spec.train.seed}"] if spec.train.seed else []
    return " ".join(words)
