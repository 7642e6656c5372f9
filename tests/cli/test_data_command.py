import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from typer.testing import CliRunner

from routelaw.cli.data import app
from routelaw.errors import InputError

BODY = b"run_id,router\n" * 100


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The options that fetch from a server on this machine, with a cache of the test's own."""
    monkeypatch.setenv("ROUTELAW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = tmp_path / "served"
    served.mkdir()
    (served / "x.gz").write_bytes(BODY)
    with HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served))) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        sha256 = hashlib.sha256(BODY).hexdigest()
        yield ["--url", f"http://127.0.0.1:{http.server_port}/x.gz", "--sha256", sha256]
        http.shutdown()
        thread.join(timeout=5)


def test_fetch_into_the_cache(mirror: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["fetch", "--json", *mirror])
    path = tmp_path / "cache" / "clark2022" / "curves.csv.gz"
    assert json.loads(result.stdout) == {"path": str(path), "bytes": len(BODY), "sha256": mirror[-1]}
    assert path.read_bytes() == BODY


def test_fetch_elsewhere_prints_the_path_alone(mirror: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["fetch", "--to", str(tmp_path / "here"), *mirror])
    assert result.stdout.strip() == str(tmp_path / "here" / "curves.csv.gz")
    result = CliRunner().invoke(app, ["fetch", "--out", str(tmp_path / "mine.gz"), *mirror])
    assert result.stdout.strip() == str(tmp_path / "mine.gz")
    assert (tmp_path / "mine.gz").read_bytes() == BODY


def test_either_directory_or_file(mirror: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["fetch", "--to", str(tmp_path), "--out", str(tmp_path / "x"), *mirror])
    assert isinstance(result.exception, InputError)


def test_wrong_hash(mirror: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["fetch", *mirror[:-1], "0" * 64])
    assert isinstance(result.exception, InputError)
    assert not (tmp_path / "cache" / "clark2022" / "curves.csv.gz").exists()


def test_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTELAW_CACHE", str(tmp_path))
    expected = str(tmp_path / "clark2022" / "curves.csv.gz")
    assert CliRunner().invoke(app, ["where"]).stdout.startswith(f"{expected} (not there yet")
    assert json.loads(CliRunner().invoke(app, ["where", "--json"]).stdout) == {"path": expected, "present": False}
