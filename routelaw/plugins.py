"""Plugins: a Python file of the user's that defines a router or a law.

The file is code, run with all rights of the user's. What is run is what was read, and what was read has a hash: a run's
meaning contains the hash of the file that its router came from (specs/run.py), so that an edited router is another run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from routelaw.errors import InputError
from routelaw.files import read_bytes
from routelaw.formatting import shortened

MOST_BYTES = 4 << 20
PREFIX = "routelaw_plugin_"
"""Prefix of the module name that a plugin gets: errors raised in a plugin are recognised by it."""

_router_files: dict[str, str] = {}


@dataclass(frozen=True)
class Plugin:
    path: Path
    sha256: str
    module: ModuleType


def load_plugin(path: Path) -> Plugin:
    """Run a plugin's file as a module. Whatever it raises is one sentence, an exit included."""
    if path.suffix != ".py" or not path.is_file():
        raise InputError(f"plugin {path} is not a Python file that can be read.")
    content = read_bytes(path, MOST_BYTES)
    sha256 = hashlib.sha256(content).hexdigest()
    name = f"{PREFIX}{path.stem}_{sha256[:12]}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before
        if isinstance(error, InputError):
            raise
        why = " ".join(str(error).split())
        raise InputError(f"plugin {path} fails when it is loaded: {type(error).__name__}: {why:.300}.") from error
    return Plugin(path, sha256, module)


def fault_in_plugin(error: BaseException) -> str:
    """Where an exception came out of a plugin's code, as `FILE, line N: ValueError: …`; empty where it did not."""
    place, trace = "", error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__", "")).startswith(PREFIX):
            place = f"{frame.f_code.co_filename}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return f"{place}: {type(error).__name__}: {shortened(' '.join(str(error).split()), 300)}" if place else ""


def remember_router(name: str, sha256: str) -> None:
    """A router of this name comes from a file with this content."""
    _router_files[name] = sha256


def router_file(name: str) -> str:
    """The sha256 of the file that a router was loaded from; empty for routers of the package."""
    return _router_files.get(name, "")
