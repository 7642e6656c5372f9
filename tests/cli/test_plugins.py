"""Files of the user's: what goes wrong in one is a sentence that names its line."""

import re
from pathlib import Path

import pytest

from routelaw.errors import InputError
from routelaw.laws import load_law
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


OWN = """
import numpy as np
from routelaw.laws.law import Law, Parameter
class Mine(Law):
    name, formula, source, inputs = "mine", "log L = a log N + d", "me", ("active_params", "experts")
    parameters = (Parameter("a", "slope", -1, 1, starts=(-0.1,)), Parameter("d", "level", -5, 5, starts=(1.0,)))
    def log_loss(self, p, x):
        found = p[:, :1] * np.log10(x["active_params"]) + p[:, 1:2]
        return found
    REST
LAW = Mine()
"""


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        *(
            (f"log_loss = lambda self, p, x: {result}", "log_loss of law mine must return float64 of shape")
            for result in (
                "None", "2.5", "np.zeros(3)", "np.zeros((9, 5))", "np.full((len(p), 9), 'x')", "[[1.0] * 9] * len(p)",
                "np.ones((len(p), 9), bool)", "np.ones((len(p), 9), object)", "np.ones((len(p), 9), complex)",
                "np.ones((len(p), 9), np.float16)", "np.ones((len(p), 9), int)",
            )
        ),
        ("log_loss = lambda self, p, x: np.random.rand(len(p), x['experts'].shape[-1])", "something else every time"),
        ("log_loss = lambda self, p, x: exit(0)", "line 10: SystemExit"),
        ("log_loss = lambda self, p, x: p.__setitem__(0, 1)", "read-only"),
        ("parameters = ()", "has 0 parameters"),
        ("parameters = 'a'", "are a tuple of Parameter"),
        ("names = ('a',)", "are not the names of its parameters"),
        ("parameters = (Parameter('a', 'x', starts=(1.0,)),) * 2", "two parameters of law mine are called 'a'"),
        ("parameters = (Parameter('a', 'x', 1, -1), Parameter('d', 'y'))", "a lower bound below its upper one"),
        ("parameters = (Parameter('a', 'x', log=True), Parameter('d', 'y'))", "bounds lie above 0"),
        ("starts = lambda self, x, loss, weights, count: np.zeros((1, 1, 7))", "starts of law mine must have"),
        ("starts = lambda self, x, loss, weights, count: np.full((2, 1, 2), np.nan)", "must be finite"),
        ("jacobian = lambda self, p, x: np.zeros((2, 2))", "jacobian of law mine must return"),
        ("jacobian = lambda self, p, x: np.full((len(p), 9, 2), np.nan)", "is nowhere finite"),
        ("searches = 0", "searches of law mine"),
        ("searches = -5", "searches of law mine"),
        ("slopes = lambda self, p, x: 1", "slopes of law mine must be two arrays"),
        ("log_cutoff = lambda self, p, experts: 'x'", "log_cutoff of law mine must return"),
        ("name = 7", "the name of a law is a short text"),
        ("inputs = ('colour',)", "reads 'colour'; a law may read"),
    ],
)  # fmt: skip
def test_a_law_that_returns_the_wrong_thing_is_refused_by_name(tmp_path: Path, rest: str, said: str) -> None:
    file = tmp_path / "law.py"
    file.write_text(OWN.replace("REST", rest))
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        load_law(file)
    assert str(caught.value).startswith(f"plugin {file}")


def test_two_files_may_not_define_a_law_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routelaw.laws._plugins", {})
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(OWN.replace("REST", ""))
    load_law(tmp_path / "one.py")
    load_law(tmp_path / "one.py")
    with pytest.raises(InputError, match="there is a law 'mine' already"):
        load_law(tmp_path / "two.py")
