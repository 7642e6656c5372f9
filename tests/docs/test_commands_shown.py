"""Commands, options, fields and files that the documents name exist. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main

import routelaw
from routelaw.cli.main import app
from routelaw.specs.run import ExecutionSpec, ModelSpec, RouterSpec, TrainSpec

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "experiments/README.md")
DOCUMENTS = [ROOT / name for name in PAGES] + sorted((ROOT / "docs").glob("*.md"))
every_document = pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))

COMMANDS: Any = typer.main.get_command(app)
DEFAULTS = {"plan": "model"}
"""Groups that take a command of theirs for granted."""
OPTION = re.compile(r"--[a-z][a-z0-9-]*")
FIELD = re.compile(r"\b(model|router|train|execution)\.([a-z]\w*)(?!\w*[/(])")
FIELDS = {
    "model": {"size"} | {f.name for f in fields(ModelSpec)},
    "router": {f.name for f in fields(RouterSpec)},
    "train": {f.name for f in fields(TrainSpec)},
    "execution": {f.name for f in fields(ExecutionSpec)},
}
OWN_PATH = re.compile(r"(?<![\w./-])((?:routelaw|tests|experiments|benchmarks|verification|docs)/[\w./*-]+)")


def code_of(text: str) -> Iterator[str]:
    """Code spans, and the lines of code blocks without comments; a line that ends in a backslash goes on."""
    yield from re.findall(r"`([^`\n]+)`", text)
    joined = re.sub(r"\\\n\s*", "", text)
    for line in re.findall(r"^    +(.*)$", joined, re.MULTILINE):
        yield re.split(r"\s#\s", line)[0]


def commands_of(text: str) -> Iterator[list[str]]:
    """The words after `routelaw` wherever it is the command."""
    for code in code_of(text):
        if found := re.match(r"(?:\S*torchrun .* -m )?routelaw (\S.*)", code):
            yield found[1].split()


def faults(words: list[str]) -> list[str]:
    """What of a command line does not exist."""
    command, path = COMMANDS, "routelaw"
    while hasattr(command, "commands"):
        if not words or words[0] in ("--help", "…", "COMMAND"):
            return []
        if words[0] not in command.commands:
            if command.name not in DEFAULTS:
                return [f"{path} has no command {words[0]}"]
            words = [DEFAULTS[command.name], *words]
        path += f" {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = [word.partition("=")[0] for word in words if OPTION.match(word)]
    return [f"{path} has no option {name}" for name in given if name not in known | {"--help"}]


def all_options(command: Any = COMMANDS) -> set[str]:
    here = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return here.union(*(all_options(inner) for inner in getattr(command, "commands", {}).values()))


@every_document
def test_commands_and_their_options_exist(page):
    shown = list(commands_of(page.read_text(encoding="utf-8")))
    assert [fault for words in shown for fault in faults(words)] == []


@every_document
def test_options_and_fields_named_in_prose_exist(page):
    known = all_options() | {"--help"}
    for code in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
        if OPTION.match(code):
            assert OPTION.match(code)[0] in known, code


@every_document
def test_fields_of_specs_exist(page):
    text = re.sub(r"\S+/\S+", "", page.read_text(encoding="utf-8"))  # no file names
    named = {(table, name) for table, name in FIELD.findall(text) if name not in ("toml", "py", "md")}
    assert [f"{table}.{name}" for table, name in sorted(named) if name not in FIELDS[table]] == []


@every_document
def test_files_named_in_code_exist(page):
    for code in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
        for name in OWN_PATH.findall(code):
            assert any(ROOT.glob(name.rstrip("/"))), name


def test_the_python_page_names_what_there_is():
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    used = set(re.findall(r"\brl\.(\w+)", text))
    listed = set(re.findall(r"`(\w+)`", text.partition("## All names")[2]))
    assert used <= set(routelaw.__all__)
    assert listed == set(routelaw.__all__)


def test_the_readme_shows_commands():
    shown = [words[0] for words in commands_of((ROOT / "README.md").read_text(encoding="utf-8"))]
    assert {"fit", "compare", "train", "sweep", "report", "plan"} <= set(shown)


def test_the_checker_finds_what_does_not_exist():
    page = (
        "Text `routelaw fit --no-such` and `routelaw plan --memory 1` and\n\n"
        "    routelaw no-such-command --size 1M  # --comment\n"
        "    routelaw runs nothing\n    routelaw train --size 1M \\\n        --sise 2\n"
        "    torchrun --nnodes 4 -m routelaw train --dat 4\n    routelaw COMMAND --help\n"
    )
    found = [fault for words in commands_of(page) for fault in faults(words)]
    assert found == [
        "routelaw fit has no option --no-such",
        "routelaw has no command no-such-command",
        "routelaw runs has no command nothing",
        "routelaw train has no option --sise",
        "routelaw train has no option --dat",
    ]
    assert FIELD.findall("`router.capacity = 1`, `router.name`") == [("router", "capacity"), ("router", "name")]
    assert OWN_PATH.findall("see routelaw/specs/run.py and /tmp/routelaw/x.py") == ["routelaw/specs/run.py"]
