"""Wrong input of every kind, to every command: exit code 2, one sentence, no traceback, nothing left behind.

Cases are data: `commands.txt` (command lines), `tables.py`, `specs.py` and `damage.py`. The wording is nobody's
business here. What must not happen in this process (memory filled, threads by the million) runs in one of its own.
"""

from __future__ import annotations

import functools
import os
import shlex
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from damage import damaged_corpora, damaged_runs
from running import BYTES, SECONDS, Outcome, in_its_own, in_this_process
from sandbox import build_place, copied, paths, snapshot
from specs import bad_specs
from tables import READERS, TABLES, bad_table

from routelaw.cli.main import app

HERE = Path(__file__).parent
REFUSED, SOUND = "refused", "sound"


@dataclass(frozen=True)
class Case:
    name: str
    line: str
    """The command line, with paths of the place in braces."""
    bad: Callable[[], bytes] | None = None
    """Makes the content of {bad}, if the line has one."""
    damage: Callable[[Path], None] | None = None
    parts: tuple[str, ...] = ()
    """Parts of the sandbox that the damage is done to, and that are copied for it."""
    expected: str = REFUSED

    @property
    def heavy(self) -> bool:
        """Better in a process of its own: it once filled the memory, hung or ended the process."""
        return any(word in f"{self.name} {self.line}" for word in HEAVY)

    @property
    def long(self) -> bool:
        """Left to `make test-all`: it waits for a server, unpacks nothing in another way, or is every other
        one of the thousand combinations of what is damaged, how, and what is then done with it."""
        again = ("bomb" in self.name or "hollow" in self.name) and self.name != "fit: gzip bomb"
        other = self.damage is not None and zlib.crc32(self.name.encode()) % 2 == 0
        return "fetch --url http:" in self.line or again or other


HEAVY = (
    "bomb", "hollow", "/dev/zero", "threads=1000000", "99999999", "100000", "device", "10^18", "--data",
    "beyond all memory", "enormous", "million",
)  # fmt: skip


def cases() -> Iterator[Case]:
    for line in (HERE / "commands.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield Case(line, line)
    for name in TABLES:
        for reader, line in READERS.items():
            if reader in ("fit", "import") or zlib.crc32(f"{name} {reader}".encode()) % 3 == 0:  # each by some of them
                yield Case(f"{reader}: {name}", line, bad=functools.partial(bad_table, name))
    for name, line, content in bad_specs():
        yield Case(name, line, bad=functools.partial(bytes, content))
    for name, line, damage in damaged_corpora():
        yield Case(name, line, damage=damage, parts=("corpus",))
    for name, line, damage in damaged_runs():
        yield Case(name, line, damage=damage, parts=("run", "half", "store", "store_of_one"), expected=SOUND)


CASES = list(cases())


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_place(tmp_path_factory.mktemp("bad_input") / "place")


@pytest.fixture(scope="session")
def sound(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Outcome]:
    """What a command says where nothing is damaged."""
    known: dict[str, Outcome] = {}

    def found(case: Case) -> Outcome:
        if case.line not in known:
            folder = tmp_path_factory.mktemp("sound")
            world = copied(place, folder / "place", case.parts)
            (folder / "cwd").mkdir()
            got = in_this_process(_words(case, world), folder / "cwd")
            known[case.line] = replace(got, out=got.out.replace(str(world), ""))
        return known[case.line]

    return found


def _words(case: Case, place: Path) -> list[str]:
    named = paths(place)
    return [word.format(**named, bad=str(place / "bad.toml")) for word in shlex.split(case.line)]


def check(case: Case, place: Path, tmp_path: Path, run: Callable[[list[str], Path], Outcome], sound) -> None:
    world = place
    if case.bad is not None or case.damage is not None:
        world = copied(place, tmp_path / "place", case.parts)
    if case.bad is not None:
        (world / "bad.toml").write_bytes(case.bad())
    words = _words(case, world)
    if case.damage is not None:
        case.damage(world)
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    before = snapshot(world)
    got = run(words, cwd)
    said = f"{got.code} after {got.seconds:.1f} s, {got.peak >> 20} MB\n{got.out[-500:]}\n{got.err[-2000:]}"
    assert "Traceback" not in got.err, said
    assert got.peak < BYTES, said
    if case.expected == SOUND and got.code == 0:
        same = got.out.replace(str(world), "") == sound(case).out
        assert same or "damaged" in got.err or "left aside" in got.err or "broken line" in got.err, said
        return
    assert got.code == 2, said
    lines = [line for line in got.err.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("error: ", "Error: "))]
    assert len(errors) == 1, said
    assert lines[-1] == errors[0], said
    assert errors[0].isprintable(), said
    assert len(errors[0]) < 2000, said
    assert not any(cwd.iterdir()), f"left behind: {sorted(map(str, cwd.rglob('*')))}"
    assert snapshot(world) == before, said


def number(case: Case) -> str:
    return "".join(c if c.isprintable() and c not in "[]/" else "_" for c in case.name)[:80]


@pytest.mark.parametrize("case", [case for case in CASES if not case.long], ids=number)
def test_bad_input(case: Case, place: Path, tmp_path: Path, sound, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTELAW_CACHE", str(tmp_path / "no-cache"))
    check(case, place, tmp_path, in_its_own if case.heavy else in_this_process, sound)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=number)
def test_bad_input_in_a_process(
    case: Case, place: Path, tmp_path: Path, sound, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUTELAW_CACHE", str(tmp_path / "no-cache"))

    def run(words: list[str], cwd: Path) -> Outcome:
        got = in_its_own(words, cwd)
        assert got.seconds < SECONDS * (1 + os.getloadavg()[0]), f"{got.seconds:.1f} s"
        return got

    check(case, place, tmp_path, run, sound)


def test_there_are_enough_of_them() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) >= 400
    commands = {case.line.split()[0] for case in CASES}
    assert commands >= {command.name or command.callback.__name__ for command in app.registered_commands}
    assert commands >= {group.name for group in app.registered_groups}
