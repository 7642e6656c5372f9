import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from routelaw.cli.corpus import app
from routelaw.errors import InputError


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    text = folder / "text.txt"
    text.write_text("".join(f"Document {n} has some words of text\n" for n in range(300)))
    words = ["build", str(text), "--out", str(folder / "corpus"), "--vocabulary", "290", "--documents", "line"]
    result = CliRunner().invoke(app, [*words, "--validation", "0.05", "--json"], catch_exceptions=False)
    figures = json.loads(result.stdout)
    assert figures["train"]["documents"] + figures["validation"]["documents"] == 300
    assert figures["vocabulary"] == 290
    assert figures["end_of_text"] == 1
    return folder / "corpus"


def test_show(built: Path) -> None:
    for_people = CliRunner().invoke(app, ["show", str(built), "--verify"]).stdout
    figures = json.loads(CliRunner().invoke(app, ["show", str(built), "--json"]).stdout)
    assert figures["id"] in for_people
    assert f"{figures['train']['tokens']:,}" in for_people
    assert "bytes per token" in for_people


def test_damage_is_one_error(built: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["show", str(tmp_path)])
    assert isinstance(result.exception, InputError)
    assert "make one with `routelaw corpus build`" in str(result.exception)


def test_options_arrive(built: Path, tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(b'{"body": "one \xff"}\n{"body": "two"}\n')
    words = [
        "build",
        str(source),
        "--out",
        str(tmp_path / "c"),
        "--tokenizer",
        str(built / "tokenizer.model"),
        "--json",
    ]
    for options, sentence in ((["--errors", "replace"], "no key 'text'"), (["--key", "body"], "not valid UTF-8")):
        error = CliRunner().invoke(app, [*words, *options]).exception
        assert isinstance(error, InputError)
        assert sentence in str(error)
    done = CliRunner().invoke(app, [*words, "--key", "body", "--errors", "replace", "--workers", "1"])
    assert json.loads(done.stdout)["train"]["documents"] == 1
    error = CliRunner().invoke(app, [*words, "--key", "body", "--errors", "replace"]).exception
    assert "exists already" in str(error)
    done = CliRunner().invoke(app, [*words, "--key", "body", "--errors", "replace", "--force", "--validation", "0"])
    assert json.loads(done.stdout)["validation"]["documents"] == 0


def test_the_module_imports_nothing_heavy() -> None:
    program = (
        "import sys, routelaw.cli.corpus\n"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'torch', 'sentencepiece', 'routelaw.corpus'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
