"""Files of the user's: what goes wrong in one is a sentence that names its line."""

from pathlib import Path

import pytest

from routelaw.errors import InputError
from routelaw.plugins import fault_in_plugin, load_plugin

TABLE = "run_id,router,experts,active_params,loss_validation\n" + "".join(
    f"{router}-{size}-{experts},{router},{experts},{size},{5 - i / 10 - experts / 100}\n"
    for i, size in enumerate((10**7, 10**8, 10**9))
    for router, experts in (("dense", 1), ("moe", 2), ("moe", 8))
)
LAW = """
from routelaw import PowerSum, coefficient
def second(x):
    return BODY
LAW = PowerSum(name="mine", formula="log L = a log N + b log E + d", source="me", inputs=("active_params", "experts"),
               second=second, terms=((coefficient("a", "slope", (1, 0)), coefficient("b", "slope", (0, 1)),
                                      coefficient("d", "level", (0, 0))),))
"""
ROUTER = """
from routelaw.routers.router import Router, register
@register(NAME)
class Mine(BASE):
    def __init__(self, *given):
        raise ValueError("no\\nway \\x1b[31m")
"""


@pytest.mark.parametrize(("body", "said"), [('x["colour"]', "line 4: KeyError: 'colour'"), ("1 / 0", "ZeroDivision")])
def test_a_law_that_fails_when_it_is_used_names_its_line(command, tmp_path: Path, body: str, said: str) -> None:
    (tmp_path / "runs.csv").write_text(TABLE)
    (tmp_path / "law.py").write_text(LAW.replace("BODY", body))
    words = ("fit", tmp_path / "runs.csv", "--law", "mine", "--plugin", tmp_path / "law.py")
    code, out, err = command(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"error: plugin {tmp_path / 'law.py'}, " in err
    assert said in err


def test_whoever_wrote_it_may_see_all_of_the_error(command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs.csv").write_text(TABLE)
    (tmp_path / "law.py").write_text(LAW.replace("BODY", "1 / 0"))
    monkeypatch.setenv("ROUTELAW_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        command("fit", tmp_path / "runs.csv", "--law", "mine", "--plugin", tmp_path / "law.py")


def test_a_router_that_fails_when_it_is_built_and_one_that_is_none(command, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    words = ("count", "--size", "0.2M", "--router", "mine", "--experts", "4", "--plugin", file)
    for name, base, said in (
        ('"mine"', "Router", "line 6: ValueError: no way \\x1b[31m"),
        ('"mine"', "object", "is no router: a router is a subclass of Router"),
        ("7", "Router", "a router's name is lower case with hyphens"),
    ):
        file.write_text(ROUTER.replace("NAME", name).replace("BASE", base))
        code, _, err = command(*words)
        assert (code, err.count("\n")) == (2, 1)
        assert said in err
        assert "\x1b" not in err


def test_an_error_of_our_own_is_not_blamed_on_a_plugin() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int("x")
    assert fault_in_plugin(caught.value) == ""


@pytest.mark.parametrize(
    "content", ["import sys; sys.exit(0)", "raise KeyboardInterrupt", "class X(BaseException): pass\nraise X"]
)
def test_whatever_a_file_raises_as_it_is_loaded(tmp_path: Path, content: str) -> None:
    (tmp_path / "odd.py").write_text(content)
    interrupted = "KeyboardInterrupt" in content
    with pytest.raises(KeyboardInterrupt if interrupted else InputError):
        load_plugin(tmp_path / "odd.py")
