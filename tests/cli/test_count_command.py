import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from routelaw.cli.count import count
from routelaw.errors import InputError


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(count)
    return app


def test_json(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["--size", "370M", "--router", "s-base", "--experts", "64", "--json"])
    assert json.loads(result.stdout) == {
        "active_params": 368_123_904,
        "total_params": 368_123_904 + 6 * (63 * 8 * 1536**2 + 64 * 1536),
        "flops_per_token": 1_061_965_824 + 6 * 2 * 1536 * 64,
    }


def test_for_people(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["--size", "7b"])
    assert result.stdout.split()[:2] == ["active_params", "6,979,846,144"]


def test_options_arrive(app: typer.Typer) -> None:
    def total(*options: str) -> int:
        words = ["--size", "25M", "--router", "S_Base", "--experts", "8", "--json", *options]
        return json.loads(CliRunner().invoke(app, words).stdout)["total_params"]

    assert total("--shared-decisions") == total() - 3 * 8 * 512
    assert total("--routing-frequency", "0.25") < total() < total("--ffws-per-expert", "2")
    assert total("--k", "2", "--sequence-length", "1024", "--vocabulary", "100") == total()


def test_wrong_input_is_one_error(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["--size", "37OM"])
    assert isinstance(result.exception, InputError)
    assert "did you mean '370M'" in str(result.exception)


def test_a_misspelt_router_is_refused_though_any_name_can_be_counted(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["--size", "0.8M", "--router", "s-bass", "--experts", "8"])
    assert isinstance(result.exception, InputError)
    assert "Unknown router 's-bass' (did you mean 's-base'?)" in str(result.exception)


def test_command_modules_import_nothing_heavy() -> None:
    program = (
        "import sys, routelaw.cli.count, routelaw.cli.data\n"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'scipy', 'routelaw.specs', 'routelaw.runs'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_plugin_s_router_is_counted_and_variants_too(command, tmp_path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from routelaw.routers.router import register\nfrom routelaw.routers.switch import Switch\n"
        "@register('mine')\nclass Mine(Switch):\n    pass\n"
    )
    words = ("count", "--size", "0.2M", "--experts", "4", "--json")
    code, out, err = command(*words, "--router", "mine", "--plugin", plugin)
    assert (code, out) == command(*words, "--router", "switch")[:2]
    assert "counted as a linear one" in err
    assert command(*words, "--router", "mine").code == 2
    code, out, _ = command(*words, "--router", "rl-r", "--option", "variant=G")
    assert out == command(*words, "--router", "switch").out
    for wrong in ("variant", "variant=X", "variants=G"):
        assert command(*words, "--router", "rl-r", "--option", wrong).code == 2
