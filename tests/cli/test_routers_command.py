"""`routelaw routers`: every technique in words, and those of plugins; the reference says the same."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
from calling import command

import routelaw as rl
from routelaw.errors import InputError
from routelaw.routers import router as registry
from routelaw.routers.router import all_routers
from routelaw.specs.docstrings import field_meaning, paragraphs
from routelaw.specs.run import TrainSpec

PLUGIN = '''
from dataclasses import dataclass
from routelaw.routers.router import register
from routelaw.routers.switch import Switch

@register("by-mood")
class Mine(Switch):
    """Switch on good days.\\x1b[31m"""

    source = "a \\x1b[31mnotebook"

    @dataclass(frozen=True)
    class Options(Switch.Options):
        mood: str = "good"
        """good or bad."""
        luck: float | None = None
'''
__all__ = ["command"]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the package; a plugin does not stay."""
    all_routers()
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PLUGIN)
    return tmp_path / "mine.py"


@pytest.mark.parametrize("name", sorted(all_routers()))
def test_a_router_of_the_package_tells_all(name: str) -> None:
    found, kind = rl.describe_router(name), all_routers()[name]
    assert found.summary
    assert found.source
    assert {option.name: option.default for option in found.options} == {
        f.name: getattr(kind.Options(), f.name) for f in fields(kind.Options)
    }
    assert all(option.meaning.endswith(".") for option in found.options)
    assert found.balance_weight == kind.default_balance_weight
    assert not any("Shapes:" in words for words in found.paragraphs)


def test_the_command_lists_all_with_their_options(command) -> None:
    code, out, err = command("routers")
    assert (code, err) == (0, "")
    lines, said = out.splitlines(), " ".join(out.split())
    assert max(map(len, lines)) <= 120
    for name, router in rl.describe_routers().items():
        assert name in lines
        assert router.source in said
        for option in router.options:
            assert f"router.options.{option.name} = " in said
            assert " ".join(option.meaning.split()) in said
    assert set(rl.describe_routers()) == set(all_routers())


def test_json_says_the_same(command) -> None:
    every = json.loads(command("routers", "--json")[1])
    assert set(every) == set(all_routers())
    one = json.loads(command("routers", "RL_R", "--json")[1])
    assert every["rl-r"] == one
    options = {option["name"]: option for option in one["options"]}
    assert (options["nucleus"]["default"], options["value_weight"]["default"]) == (0.9, None)
    assert (every["hash"]["decides_token_by_token"], one["decides_token_by_token"]) == (True, False)


def test_one_router_is_told_in_full(command) -> None:
    code, out, _ = command("routers", "hash")
    assert code == 0
    assert "permuted" in out
    for words in rl.describe_router("hash").paragraphs:
        assert " ".join(words.split()) in " ".join(out.split())
    assert "s-base" not in out.split()


def test_a_plugin_s_router_is_among_them(command, plugin: Path) -> None:
    code, out, _ = command("routers", "--plugin", plugin, "by-mood")
    assert code == 0
    assert "Switch on good days." in out
    assert 'router.options.mood = "good": good or bad.' in out
    assert "router.options.luck = None: its file does not say." in out
    assert "router.options.jitter = 0.0: In training" in out  # inherited, with what is said of it there
    assert "\x1b" not in out
    assert "by-mood" in json.loads(command("routers", "--json")[1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sbase",), "did you mean 's-base'?"),
        (("nonsense",), "there are dense, "),
        (("dense",), "no router"),
        (("--plugin", "nowhere.py"), "not a Python file"),
    ],
)
def test_what_is_wrong_is_one_sentence(command, words: tuple[str, ...], said: str) -> None:
    code, out, err = command("routers", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_dense_is_no_router() -> None:
    with pytest.raises(InputError, match="without experts"):
        rl.describe_router("Dense")


@dataclass
class Undescribed:
    a: int = 1
    b: int = 2
    """Two."""


def test_what_is_said_of_fields() -> None:
    assert field_meaning(Undescribed, "a") == ""
    assert field_meaning(Undescribed, "b") == "Two."
    assert field_meaning(TrainSpec, "steps") == "Optimizer steps."
    made = type("Made", (Undescribed,), {})  # of no file
    assert field_meaning(made, "b") == "Two."


def test_examples_and_legends_are_no_paragraphs() -> None:
    assert paragraphs("One.\n\nTwo\nlines.\n\nShapes: T tokens.\n\n>>> 1\n1\n") == ["One.", "Two\nlines."]
