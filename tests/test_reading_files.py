"""Files of every kind but the right one are refused in a sentence, and nothing waits for them."""

import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelaw.errors import InputError
from routelaw.files import check_plain, open_regular, parse_json, parse_toml, read_bytes, read_json, write_atomically


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (fifo := tmp_path / "fifo").parent.joinpath("folder").mkdir()
    os.mkfifo(fifo)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name in ("fifo", "socket", "folder", "nowhere", "x" * 5000, "a\0b"):
            with pytest.raises(InputError):
                open_regular(tmp_path / name)
    for device in ("/dev/zero", "/dev/null"):
        with pytest.raises(InputError, match="this is a device"):
            read_bytes(device)
    (tmp_path / "link").symlink_to(fifo)
    with pytest.raises(InputError, match="FIFO"):
        read_bytes(tmp_path / "link")


def test_what_is_read_whole_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 101)
    assert len(read_bytes(tmp_path / "file", 101)) == 101
    with pytest.raises(InputError, match="larger than 100 bytes"):
        read_bytes(tmp_path / "file", 100)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"NaN",
        b'{"a": Infinity}',
        b"1e999",
        b"9" * 30,
        b"9" * 5000,
        b"\xff",
        b"[" * 100_000,
        b"[" * 70 + b"]" * 70,
        b'"\\ud800"',
    ],
)
def test_damaged_json_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(InputError, match=r"state.json is damaged") as caught:
        read_json(tmp_path / "state.json")
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [b"a = ", b"a = nan", b"a = inf", b"a = " + b"9" * 30, b"a = " + b"9" * 5000, b"a = " + b"[" * 100_000, b"\xff"],
)
def test_toml_that_cannot_be_used_is_one_sentence(content: bytes) -> None:
    with pytest.raises(InputError, match=r"spec.toml: is not TOML"):
        parse_toml(content, "spec.toml")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(PLAIN)
def test_what_we_write_is_read_back(value: object) -> None:
    import json

    check_plain(value)
    assert parse_json(json.dumps(value, allow_nan=False).encode(), "x") == value


def test_a_file_appears_whole_for_every_reader(tmp_path: Path) -> None:
    file, seen = tmp_path / "file", set()
    write_atomically(b"0" * 1000, file)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(len(set(file.read_bytes())))

    reader = threading.Thread(target=read)
    reader.start()
    for digit in range(50):
        write_atomically(str(digit % 10).encode() * 1000, file, force=True)
    stop.set()
    reader.join()
    assert seen == {1}
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
