"""A folder appears whole or not at all."""

import errno
from pathlib import Path

import pytest

from routelaw.errors import DiskFull, InputError
from routelaw.report.page import check_target, report_folder


def test_appears_when_done(tmp_path):
    out = tmp_path / "a" / "b"
    with report_folder(out) as folder:
        (folder / "x").write_text("1")
        assert not out.exists()
    assert (out / "x").read_text() == "1"
    assert [p.name for p in out.parent.iterdir()] == ["b"]


def test_failure_leaves_nothing(tmp_path):
    def fail() -> None:
        with report_folder(tmp_path / "a" / "b") as folder:
            (folder / "x").write_text("1")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_names_the_folder(tmp_path):
    out = tmp_path / "a" / "b"
    with pytest.raises(DiskFull, match=f"{out}: cannot be written"), report_folder(out):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileNotFoundError), report_folder(out):
        (tmp_path / "elsewhere").read_bytes()
    assert list(tmp_path.iterdir()) == []


def test_existing_needs_force_and_keeps_what_else_is_there(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine").write_text("mine")
    (tmp_path / "sub" / "x").write_text("old")
    with pytest.raises(InputError, match="--force"), report_folder(tmp_path):
        pass
    with report_folder(tmp_path, force=True) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "x").write_text("new")
    assert (tmp_path / "sub" / "x").read_text() == "new"
    assert (tmp_path / "sub" / "mine").read_text() == "mine"


def test_a_file_in_the_way(tmp_path):
    file = tmp_path / "file"
    file.write_text("keep")
    for out in (file, file / "below"):
        with pytest.raises(InputError), report_folder(out, force=True):
            pass
    assert file.read_text() == "keep"
    assert list(tmp_path.iterdir()) == [file]


def test_the_root_of_a_disk_is_no_folder_for_results(tmp_path, monkeypatch):
    for out in (Path("/"), Path("/..")):
        with pytest.raises(InputError, match="a folder of their own"):
            check_target(out, force=True)
    monkeypatch.chdir(tmp_path)
    check_target(Path(), force=True)


def test_a_link_that_leads_nowhere_is_refused_at_once(tmp_path):
    (tmp_path / "nowhere").symlink_to("absent")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("nowhere", "loop"):
        with pytest.raises(InputError, match="a link that leads nowhere"):
            check_target(tmp_path / name, force=True)


def test_what_a_killed_process_left_is_taken_away_by_the_next(tmp_path):
    left = tmp_path / ".out.999999999.part"  # no process has so high a number
    left.mkdir()
    (left / "x").write_text("half")
    with report_folder(tmp_path / "out") as folder:
        (folder / "x").write_text("1")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
