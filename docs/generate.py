"""The reference in docs/reference/, written from the code: its docstrings, help texts and defaults.

    python docs/generate.py [--check]

Nothing in it is typed by hand, and the same code gives the same pages on every machine. What the code does not describe
is an error that names it. `--check` writes nothing and exits with 1 where a page is not what the code gives.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import math
import pkgutil
import re
import sys
import textwrap
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import typer.main

import routelaw
import routelaw.laws
from routelaw.cli.main import app
from routelaw.routers.description import RouterOption, describe_routers
from routelaw.specs import docstrings
from routelaw.specs.docstrings import paragraphs
from routelaw.specs.run import ExecutionSpec, ModelSpec, RouterSpec, TrainSpec

ROOT = Path(routelaw.__file__).parents[1]
FOLDER = Path(__file__).parent / "reference"
WRITTEN = "<!-- Written by `python docs/generate.py` from the code: change the docstring or the help text there. -->"
KINDS = {str: "text", int: "whole number", float: "number", Path: "path", bool: "flag"}
"""What an option takes, in words."""
LARGE = 1e9
"""An upper limit of an option from here on only keeps out what cannot be meant."""


class Undocumented(Exception):
    """Something that the reference shows and the code does not describe."""


# -- Markdown ------------------------------------------------------------------------------------------


def code(value: Any) -> str:
    """A code span, or nothing."""
    text = str(value).replace("|", "\\|")
    return f"`{text}`" if text else ""


def table(head: str, rows: Iterable[Iterable[str]]) -> str:
    columns = head.split("|")
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(" ".join(cell.split()) for cell in line) + " |" for line in lines)


def prose(text: str) -> str:
    """Words for a table, outside of code spans without anything that Markdown would take for its own."""
    parts = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
    return "".join(part if part.startswith("`") else re.sub(r"([<*_])", r"\\\1", part) for part in parts)


def link(title: str) -> str:
    """To a section of the same page, by the anchor that GitHub makes."""
    return f"[{title}](#{title.lower().replace(' ', '-')})"


def source(module: str) -> str:
    path = Path(str(sys.modules[module].__file__)).relative_to(ROOT).as_posix()
    return f"[{path}](../../{path})"


# -- docstrings ----------------------------------------------------------------------------------------


def docstring(thing: Any, name: str) -> str:
    text = inspect.getdoc(thing)
    if not text:
        raise Undocumented(f"{name} has no docstring")
    return text


def field_meaning(kind: type, name: str) -> str:
    """The string below a field of a class."""
    if words := docstrings.field_meaning(kind, name):
        return words
    raise Undocumented(f"field {kind.__name__}.{name} has no string below it that says what it is")


def field_rows(kind: type, prefix: str = "", leave_out: str = "") -> Iterator[list[str]]:
    for f in fields(kind):  # pyrefly: ignore
        if f.name == leave_out or not f.init:
            continue
        type_name = f.type if isinstance(f.type, str) else f.type.__name__
        default = f.default if f.default_factory is MISSING else f.default_factory()
        shown = "required" if default is MISSING else default_of(default)
        yield [code(prefix + f.name), code(type_name), shown, prose(field_meaning(kind, f.name))]


def default_of(value: Any) -> str:
    return code(json.dumps(value) if isinstance(value, str) else value)


def signature(function: Callable[..., Any]) -> str:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree.args.posonlyargs, tree.args.args = [], [a for a in tree.args.args if a.arg not in ("self", "cls")]
    returns = f" -> {ast.unparse(tree.returns)}" if tree.returns else ""
    return f"({ast.unparse(tree.args)}){returns}"


# -- pages ---------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command with its arguments and options."""
    parts = []

    def walk(command: Any, path: str) -> None:
        inner = getattr(command, "commands", {})
        parts.append(f"## {path}\n\n" + inspect.cleandoc(command.help or ""))
        if not inner:
            rows = [parameter_row(command, parameter) for parameter in command.params]
            parts.append(table("argument or option|takes|default|meaning", rows))
        for name, below in inner.items():
            walk(below, f"{path} {name}")

    for name, command in typer.main.get_command(app).commands.items():  # pyrefly: ignore
        walk(command, f"routelaw {name}")
    return "\n\n".join(parts)


def parameter_row(command: Any, parameter: Any) -> list[str]:
    if not parameter.help:
        raise Undocumented(f"{command.name}: {parameter.name} has no help")
    hint = typing.get_type_hints(command.callback)[parameter.name]
    inner = next(part for part in typing.get_args(hint) or (hint,) if part is not type(None))
    takes = KINDS[(typing.get_args(inner) or (inner,))[0]]
    if parameter.min is not None:
        bounded = parameter.max is not None and parameter.max < LARGE
        takes += f", {parameter.min:g} to {parameter.max:g}" if bounded else f", at least {parameter.min:g}"
    is_option = parameter.param_type_name == "option"
    names = (*parameter.opts, *parameter.secondary_opts) if is_option else [parameter.metavar or parameter.name.upper()]
    if is_option and parameter.metavar:
        takes = code(parameter.metavar)
    takes += ", several" * (parameter.multiple or parameter.nargs != 1)
    default = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    if isinstance(default, bool):
        default = names[0] if default else None
    shown = "required" if parameter.required else "" if default is None else code(default)
    return [", ".join(map(code, names)), takes, shown, prose(parameter.help)]


def fields_page() -> str:
    """Every field of a run: model, router, training and execution."""
    architecture = typing.get_type_hints(ModelSpec)["architecture"]
    size = [code("model.size"), code("str"), "this, or the next four", prose(field_meaning(ModelSpec, "architecture"))]
    parts = []
    for name, kind in (
        ("model", ModelSpec),
        ("router", RouterSpec),
        ("train", TrainSpec),
        ("execution", ExecutionSpec),
    ):
        rows = list(field_rows(kind, f"{name}.", leave_out="architecture"))
        if kind is ModelSpec:
            rows = [size, *([*row[:2], "", row[3]] for row in field_rows(architecture, "model.")), *rows]
        words = "\n\n".join(paragraphs(docstring(kind, name)))
        parts.append(f"## {name}\n\n{words}\n\n{table('field|type|default|meaning', rows)}")
    return "\n\n".join([*parts, f"Defined in {source(ModelSpec.__module__)}."])


def routers_page() -> str:
    """Every routing technique with its source and its own options."""
    summary, parts = [], []
    for name, router in describe_routers().items():
        if not router.paragraphs or not router.source:
            raise Undocumented(f"router {name} has no {'source' if router.paragraphs else 'docstring'}")
        summary.append([link(name), prose(router.summary)])
        rows = [option_row(name, option) for option in router.options]
        options = table("option|type|default|meaning", rows) if rows else "No options of its own."
        weight = router.balance_weight
        balance = [f"Default of `router.balance_weight`: {weight:g}."] if weight else []
        where = f"Source: {prose(router.source)}. Defined in {source(router.module)}."
        parts += [f"## {name}", *router.paragraphs, options, *balance, where]
    head = "`routelaw routers` lists the same, with routers of your own."
    return "\n\n".join([table("router|how tokens find their experts", summary), head, *parts])


def option_row(router: str, option: RouterOption) -> list[str]:
    if not option.meaning:
        raise Undocumented(f"option {option.name} of router {router} has no string below it that says what it is")
    return [code(f"router.options.{option.name}"), code(option.type), default_of(option.default), prose(option.meaning)]


def laws_page() -> str:
    """Every scaling law: formula, source, columns and parameters."""
    laws = routelaw.laws.all_laws()
    modules = (importlib.import_module(f"routelaw.laws.{m.name}") for m in pkgutil.iter_modules(routelaw.laws.__path__))
    home = {module.LAW.name: module for module in modules if hasattr(module, "LAW")}
    parts = []
    for name, law in laws.items():
        rows = [[code(p.name), bounds(p), "log10" if p.log else "", prose(p.meaning)] for p in law.parameters]
        reads = ", ".join(f"[{column}](columns.md)" for column in law.inputs)
        rest = f"Reads {reads}{', at every step of a run' * law.along_training}. Source: {prose(law.source)}."
        words = "\n\n".join(paragraphs(docstring(home[name], name)))
        parameters = table("parameter|bounds|searched in|meaning", rows)
        if law.constants:
            derived = table("derived|meaning", [[code(c.name), prose(c.meaning)] for c in law.constants])
            parameters += f"\n\n{derived}"
        where = f"Defined in {source(home[name].__name__)}."
        parts.append("\n\n".join([f"## {name}", f"    {law.formula}", words, rest, parameters, where]))
    rows = [[link(name), code(law.formula), prose(law.source)] for name, law in laws.items()]
    return "\n\n".join([table("law|formula|source", rows), *parts])


def bounds(parameter: routelaw.Parameter) -> str:
    free = (parameter.low, parameter.high) == (-math.inf, math.inf)
    return "" if free else f"{parameter.low:g} to {parameter.high:g}"


def columns_page() -> str:
    """Every column of a run table."""
    run_table = sys.modules[routelaw.RunTable.__module__]
    listed = docstring(routelaw.RunTable, "RunTable").partition("Columns:\n")[2].partition("\n\n")[0]
    meaning = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", listed, re.MULTILINE))
    if missing := set(run_table.DESCRIPTION) - set(meaning):
        raise Undocumented(f"the docstring of RunTable does not describe {', '.join(sorted(missing))}")
    required = {*run_table.REQUIRED, "loss_validation"}
    rows = [[code(name), "yes" if name in required else "", prose(words)] for name, words in meaning.items()]
    head = (
        "One row per run and evaluation. One column of losses is required, by whatever name. Unknown columns are kept."
    )
    return f"{head}\n\n{table('column|required|meaning', rows)}\n\nDefined in {source(run_table.__name__)}."


def python_page() -> str:
    """Every public name of `import routelaw as rl`."""
    return "\n\n".join(
        name_section(name, getattr(routelaw, name)) for name in sorted(routelaw.__all__, key=lambda n: (n.lower(), n))
    )


def name_section(name: str, thing: Any) -> str:
    if not callable(thing):
        return f"## {name}\n\nA table of {len(thing)}: {', '.join(code(key) for key in thing)}."
    text = docstring(thing, name)
    example = "\n".join(part for part in text.split("\n\n") if part.startswith(">>>"))
    title, rows = f"## {name}", []
    if inspect.isclass(thing):
        if is_dataclass(thing):
            rows = [[cells[0], cells[1], prose(attribute_meaning(thing, f.name))] for f, cells in plain_fields(thing)]
        rows += [[code(member), code(kind), prose(words)] for member, kind, words in members(thing)]
    else:
        call = textwrap.wrap(f"rl.{name}{signature(thing)}", 100, subsequent_indent="    ", break_on_hyphens=False)
        title += "\n\n" + textwrap.indent("\n".join(call), "    ")
    parts = [title, *paragraphs(text), f"```python\n{example}\n```"]
    parts += [table("attribute or method|type|meaning", rows)] if rows else []
    return "\n\n".join([*parts, f"Defined in {source(thing.__module__)}."])


def plain_fields(kind: type) -> Iterator[tuple[Any, list[str]]]:
    for f in fields(kind):  # pyrefly: ignore
        if not f.name.startswith("_"):
            yield f, [code(f.name), code(f.type if isinstance(f.type, str) else f.type.__name__)]


def attribute_meaning(kind: type, name: str) -> str:
    """Empty where the name says it all."""
    try:
        return field_meaning(kind, name)
    except Undocumented:
        return ""


def members(kind: type) -> Iterator[tuple[str, str, str]]:
    """Properties and methods of its own that have a docstring."""
    for name, member in vars(kind).items():
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        words = paragraphs(inspect.cleandoc(function.__doc__))[0]
        if isinstance(member, property):
            yield name, str(function.__annotations__.get("return", "")), words
        else:
            yield name + signature(function).partition(" -> ")[0], signature(function).partition(" -> ")[2], words


PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "commands.md": ("Commands", commands_page),
    "fields.md": ("Fields of a run", fields_page),
    "routers.md": ("Routers", routers_page),
    "laws.md": ("Laws", laws_page),
    "columns.md": ("Columns of the run table", columns_page),
    "python.md": ("Python names", python_page),
}


def contents(body: str) -> str:
    """Links to the sections of a page that does not begin with a table of them."""
    seen: Counter[str] = Counter()
    links = []
    for title in re.findall(r"^## (.*)$", body, re.MULTILINE) if body.startswith("## ") else ():
        number = seen[title.lower()]
        links.append(f"{link(title)[:-1]}-{number})" if number else link(title))
        seen[title.lower()] += 1
    return " ·\n".join(links) + "\n\n" if links else ""


def pages() -> dict[str, str]:
    """The text of every page by its file name."""
    index = table("page|what it lists", [[f"[{t}]({name})", docstring(make, t)] for name, (t, make) in PAGES.items()])
    found = {
        "README.md": ("Reference", f"Made from the code; `make check` fails where a page is not current.\n\n{index}")
    }
    found |= {name: (title, make()) for name, (title, make) in PAGES.items()}
    return {
        name: f"# {title}\n\n{WRITTEN}\n\n{contents(body)}{body.strip()}\n" for name, (title, body) in found.items()
    }


def stale(folder: Path, wanted: dict[str, str]) -> list[str]:
    """Names of pages that are missing, not as wanted, or left over."""
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*")}
    return sorted(name for name in there.keys() | wanted.keys() if there.get(name) != wanted.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a page is stale")
    check = parser.parse_args().check
    try:
        wanted = pages()
    except Undocumented as error:
        sys.stderr.write(f"error: {error}.\n")
        return 1
    changed = stale(FOLDER, wanted)
    if check and changed:
        sys.stderr.write(f"error: docs/reference is not what the code gives ({', '.join(changed)}): make docs.\n")
        return 1
    FOLDER.mkdir(exist_ok=True)
    for name in changed:
        path = FOLDER / name
        path.write_text(wanted[name], encoding="utf-8") if name in wanted else path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
