"""The laws. One file each, found by being there: a module of this package that defines `LAW` is a law.

A law of your own is one such file anywhere (`load_law(path)`, `--plugin FILE` on the command line) or one object.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from routelaw.errors import InputError
from routelaw.laws.law import Law, Parameter
from routelaw.laws.power_sum import PowerSum, coefficient, scale
from routelaw.laws.trial import try_law
from routelaw.plugins import load_plugin
from routelaw.specs.names import nearest_hint

__all__ = ["Law", "Parameter", "PowerSum", "all_laws", "coefficient", "get_law", "load_law", "scale"]

_plugins: dict[str, Law] = {}
_files: dict[str, Path] = {}
"""Where each law of a plugin came from: the same file may be loaded again, after a change say."""


@cache
def _built_in() -> dict[str, Law]:
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    laws = [module.LAW for module in modules if hasattr(module, "LAW")]
    return {law.name: law for law in sorted(laws, key=lambda law: len(law.parameters))}


def all_laws() -> dict[str, Law]:
    """Every law by name, fewest parameters first, plugins last.

    >>> "saturated" in rl.all_laws()
    True
    """
    return {**_built_in(), **_plugins}


def get_law(law: str | Law) -> Law:
    """A law by name; a law object is returned as it is.

    >>> rl.get_law("bilinear").formula
    'log L = a·log N + b·log E + c·log N·log E + d'
    """
    if isinstance(law, Law):
        return law
    laws = all_laws()
    if law not in laws:
        raise InputError(f"unknown law {law!r}{nearest_hint(law, laws)}; the laws are {', '.join(laws)}.")
    return laws[law]


def load_law(path: str | Path) -> Law:
    """Load a file that defines `LAW` and make it known by its name. The file is code: load only what you trust.

    >>> rl.load_law("my_law.py").name
    'mine'
    """
    path = Path(path)
    law = getattr(load_plugin(path).module, "LAW", None)
    if not isinstance(law, Law):
        raise InputError(f"plugin {path} defines no law: it needs a module-level LAW that is a routelaw.Law.")
    try_law(law, path)
    file = path.resolve()
    if law.name in _built_in() or (law.name in _plugins and _files.get(law.name) != file):
        raise InputError(f"plugin {path}: there is a law {law.name!r} already; give yours another name.")
    _plugins[law.name], _files[law.name] = law, file
    return law
