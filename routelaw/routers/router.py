"""The contract between a router and the rest of the model.

A router looks at tokens and returns assignments: a flat list of (token, expert, weight). It knows nothing of
capacity, dropping, permutation or matrix products (they belong to model/experts), nor of training. A new router is
one file in this package (or a plugin) that registers itself by name; the contract tests run over every name registered.

Random numbers are a function of where they are used: (seed, step, layer, purpose, global token, choice). There is no
generator state: a step can be recomputed, resumed or split over devices and micro-batches, and every token still draws
the numbers it would have drawn. The mixing function is splitmix64's finaliser (Steele et al. 2014) in wrapping int64
arithmetic.

Shapes: T tokens, D width, E experts, K experts per token, N = T·K assignments (token-major), G routing groups of M =
T/G members, J random numbers per token.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from routelaw.errors import InputError
from routelaw.plugins import load_plugin, remember_router, router_file
from routelaw.specs.counting import PLACEMENTS
from routelaw.specs.files import from_mapping
from routelaw.specs.names import DENSE, canonical_router, nearest_hint
from routelaw.specs.run import RouterSpec, RunSpec

_MASK53 = (1 << 53) - 1


def _signed(value: int) -> int:
    """A 64-bit pattern as the int64 that holds it."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


_GAMMA, _MIX1, _MIX2 = (_signed(v) for v in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def mix(value: Tensor) -> Tensor:
    """A bijection of int64 that scatters neighbouring values."""
    value = value + _GAMMA
    value = (value ^ _logical_shift(value, 30)) * _MIX1
    value = (value ^ _logical_shift(value, 27)) * _MIX2
    return value ^ _logical_shift(value, 31)


def _logical_shift(value: Tensor, bits: int) -> Tensor:
    return (value >> bits) & ((1 << (64 - bits)) - 1)


@dataclass(frozen=True)
class Randomness:
    """Numbers for one layer at one step. `purpose` separates the uses within a layer."""

    key: Tensor
    """int64 scalar tensor, so that a compiled step does not see a new constant at every step."""

    @classmethod
    def of(cls, seed: int, step: int | Tensor, layer: int | Tensor, device: torch.device | None = None) -> Randomness:
        key = mix(torch.full((), seed, dtype=torch.int64, device=device))  # filled there: a copy would be waited for
        if not isinstance(step, Tensor):
            step = torch.full((), step, dtype=torch.int64, device=device)
        key = mix(key ^ step)
        return cls(mix(key ^ layer))

    def bits(self, purpose: int, token_T: Tensor, choices: int = 1) -> Tensor:
        """(T, choices) int64, all 64 bits random."""
        choice_J = torch.arange(choices, device=token_T.device, dtype=torch.int64)
        key = mix(self.key ^ (purpose + 1))
        return mix(mix(key ^ token_T.to(torch.int64))[:, None] ^ choice_J)

    def uniform(self, purpose: int, token_T: Tensor, choices: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
        """(T, choices) in the open interval (0, 1), so that its logarithm is finite."""
        mantissa = _logical_shift(self.bits(purpose, token_T, choices), 11) & _MASK53
        value = (mantissa.to(torch.float64) + 0.5) * 2.0**-53
        return value.to(dtype).clamp(min=torch.finfo(dtype).tiny, max=1 - torch.finfo(dtype).eps)


Losses = dict[str, tuple[Tensor, Tensor]]
"""name -> (sum, count): averages are taken by whoever knows how many devices and micro-batches there are."""


@dataclass
class Routing:
    """Tensors only, of static size: what the experts need, and what the losses will."""

    token_N: Tensor
    expert_N: Tensor
    weight_N: Tensor | None
    """None: outputs are summed as they are."""
    aux: dict[str, Tensor] = field(default_factory=dict)
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """Detached scalars for the log."""


torch.utils._pytree.register_dataclass(Routing)


@dataclass(frozen=True)
class RouteContext:
    """What a router may know besides its input."""

    token_T: Tensor
    """Global number of each token within the step: what randomness is keyed by, whatever the layout."""
    members_GM: Tensor
    """Tokens of each routing group, as indices into T (after the shuffle)."""
    valid_T: Tensor
    """False for padding: such a token must not sway balance, Sinkhorn or losses."""
    random: Randomness
    training: bool
    sequence_length: int = 0
    """S, where T is whole sequences one after another; 0: not known (only credit by sequence asks for it)."""

    group_T: Tensor = field(init=False)
    """Number of the routing group of each token: the inverse of `members_GM`."""

    @property
    def groups(self) -> int:
        return self.members_GM.shape[0]

    def __post_init__(self) -> None:
        groups, members = self.members_GM.shape
        group_T = torch.empty(groups * members, dtype=torch.int64, device=self.members_GM.device)
        group_T[self.members_GM.reshape(-1)] = torch.arange(groups * members, device=group_T.device) // members
        object.__setattr__(self, "group_T", group_T)


class Router(nn.Module):
    """Subclasses set `Options` (a frozen dataclass of what only they take) and implement `route`."""

    name: ClassVar[str]
    source: ClassVar[str] = ""
    """Where the technique is published; `routelaw routers` shows it."""

    @dataclass(frozen=True)
    class Options:
        pass

    default_balance_weight: ClassVar[float] = 0.0
    sync_free: ClassVar[bool] = False
    """True for a router that never asks the device for a value (no `.item()`, no loop over data), so that its blocks
    can be compiled whole and its steps be recorded."""
    uses_groups: ClassVar[bool] = True
    """False for a router that decides token by token: then, without capacity, a batch may be split anywhere."""

    def __init__(self, width: int, vocabulary: int, layer: int, spec: RouterSpec) -> None:
        super().__init__()
        self.width, self.vocabulary, self.layer = width, vocabulary, layer
        self.experts, self.k = spec.experts, spec.k
        self.options = parse_options(type(self), spec.options)
        self.balance_weight = self.default_balance_weight if spec.balance_weight is None else spec.balance_weight

    def route(self, x_TD: Tensor, token_ids_T: Tensor, ctx: RouteContext) -> Routing:
        """Choose experts. Every parameter of the router is used here. Arithmetic is in float32 or wider."""
        raise NotImplementedError

    def losses(self, routing: Routing, kept_N: Tensor, token_nll_T: Tensor) -> Losses:
        """Auxiliary losses, once the language-modelling loss of each token is known. Pure; touches no parameter.

        kept_N tells which assignments survived capacity. `loss_weights` has a weight for every name returned.
        """
        return {}

    @property
    def loss_weights(self) -> Mapping[str, float]:
        return {}

    def without_effect(self, spec: RouterSpec) -> dict[str, str]:
        """Fields of the spec that were given and change nothing -> why. Accepted, they would give a model many ids."""
        found = {}
        if spec.balance_weight is not None and "balance" not in self.loss_weights:
            found["balance_weight"] = f"router {self.name} has no balance loss"
        if not spec.capacity_factor and is_given(spec, "shared_slots"):
            found["shared_slots"] = "there are no slots where capacity_factor is 0"
        if spec.placement not in PLACEMENTS and is_given(spec, "routing_frequency"):
            found["routing_frequency"] = "router.placement names the routed blocks"
        if not self.uses_groups and not spec.capacity_factor:
            reason = f"router {self.name} decides token by token, and there is no capacity"
            found |= {name: reason for name in ("group_tokens", "shuffle_groups") if is_given(spec, name)}
        return found

    def forward(self, x_TD: Tensor, token_ids_T: Tensor, ctx: RouteContext) -> Routing:
        return self.route(x_TD, token_ids_T, ctx)


def is_given(spec: RouterSpec, name: str) -> bool:
    return getattr(spec, name) != getattr(RouterSpec(), name)


def check_router(spec: RunSpec) -> None:
    """Build the router of a spec as a model would, so that what it cannot be is said before anything is written."""
    check_plugin(spec.router)
    settled = replace(spec.router, group_tokens=spec.group_tokens)
    given = (spec.model.architecture.d_model, spec.model.vocabulary, 1, settled)
    if spec.router.plugin:
        from routelaw.routers.trial import try_router  # which needs this file

        try_router(router_class(spec.router.name), given)
    try:
        with torch.device("meta"):  # without memory: whether there is enough of that is another question
            router = router_class(spec.router.name)(*given)
    except (NotImplementedError, RuntimeError):  # one that looks at its own numbers as it is built
        router = router_class(spec.router.name)(*given)
    for name, why in router.without_effect(spec.router).items():
        raise InputError(f"router.{name} has no effect, since {why}: leave it out.")


def token_major(tokens: int, k: int, device: torch.device) -> Tensor:
    """token_N for K assignments of every token in turn."""
    return torch.arange(tokens * k, device=device) // k


_registry: dict[str, type[Router]] = {}


def register(name: str) -> Callable[[type[Router]], type[Router]]:
    """Make a router known by a name. That of another file's router is refused: a run says `switch` and must mean it.

    A plugin that was edited may be loaded again in the same process, and replaces what it registered before.
    """
    if not isinstance(name, str) or name != canonical_router(name) or name == DENSE:
        raise InputError(f"a router's name is lower case with hyphens and not {DENSE!r}; {name!r} is none.")

    def enter(kind: type[Router]) -> type[Router]:
        if not (isinstance(kind, type) and issubclass(kind, Router)):
            raise InputError(f"what is registered as {name!r} is no router: a router is a subclass of Router.")
        known = _registry.get(name)
        if known is not None and not (router_file(name) and _same_file(known, kind)):
            raise InputError(f"a router named {name!r} is there already ({known.__module__}); choose another name.")
        kind.name = name
        _registry[name] = kind
        return kind

    return enter


def _same_file(one: type[Router], other: type[Router]) -> bool:
    files = [getattr(sys.modules.get(kind.__module__), "__file__", None) for kind in (one, other)]
    return files[0] == files[1] is not None


@cache
def _import_all() -> None:
    import routelaw.routers as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"routelaw.routers.{module.name}")


def all_routers() -> dict[str, type[Router]]:
    _import_all()
    return dict(_registry)


def router_class(name: str) -> type[Router]:
    routers = all_routers()
    if name not in routers:
        raise InputError(
            f"unknown router {name!r}{nearest_hint(name, routers)}; there are dense, {', '.join(routers)}, "
            "and those of a --plugin."
        )
    return routers[name]


def check_plugin(spec: RouterSpec) -> None:
    """A router of a plugin is the file it was specified with: an edited one would train another model under the id of
    the old."""
    router_class(spec.name)
    loaded = router_file(spec.name)
    if loaded != spec.plugin:
        have = f"the plugin loaded has sha256 {loaded[:12]}…" if loaded else "no plugin was loaded"
        meant = f"a plugin with sha256 {spec.plugin[:12]}…" if spec.plugin else "a router of the package"
        raise InputError(f"router {spec.name}: the run means {meant} and {have}; its file was edited, or is another.")


def load_router(path: str | Path) -> list[str]:
    """Import a file that registers routers; returns the names it added. The file is code: load only what you trust.

    >>> rl.load_router("my_router.py")
    ['mine']
    """
    all_routers()  # so that a plugin cannot take the name of one that is not imported yet
    plugin = load_plugin(Path(path))
    added = sorted(name for name, kind in _registry.items() if kind.__module__ == plugin.module.__name__)
    if not added:
        raise InputError(f'plugin {path} registers no router: it needs a class under @register("name").')
    for name in added:
        remember_router(name, plugin.sha256)
    return added


def parse_options(kind: type[Router], values: Mapping[str, Any]) -> Any:
    known = [f.name for f in fields(kind.Options)]
    if values and not known:
        raise InputError(f"router {kind.name} takes no options; {next(iter(values))!r} was given.")
    return from_mapping(kind.Options, values, f"options of router {kind.name}")


def one_of(value: str, choices: Collection[str], option: str) -> str:
    """The value, if it is one of the choices."""
    if value not in choices:
        raise InputError(f"{option} is {' or '.join(choices)}, not {value!r}{nearest_hint(value, choices)}.")
    return value
