"""The downloader against a server on the loopback interface that misbehaves on demand."""

import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from routelaw.errors import InputError
from routelaw.runs.fetch import FetchError, cache_path, fetch_released, find_released

BODY = bytes(range(256)) * 1024
SHA256 = hashlib.sha256(BODY).hexdigest()


@dataclass
class Server:
    """What to serve, how badly, and what was asked."""

    url: str = ""
    body: bytes = BODY
    knows_ranges: bool = True
    break_after: list[int] = field(default_factory=list)
    """One entry per request to cut short, with the bytes sent before the connection closes."""
    errors: list[int] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("Range")
        self.ranges.append(asked)
        if self.errors:
            handler.send_error(self.errors.pop(0))
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.knows_ranges else 0
        if start >= len(self.body):
            handler.send_error(416)
            return
        rest = self.body[start:]
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(self.body) - 1}/{len(self.body)}")
        handler.send_header("Content-Length", str(len(rest)))
        handler.end_headers()
        payload = rest[: self.break_after.pop(0)] if self.break_after else rest
        self.sent.append(len(payload))  # before the client can have it all and look
        handler.wfile.write(payload)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROUTELAW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        state.url = f"http://127.0.0.1:{http.server_port}/curves.csv.gz"
        yield state
        http.shutdown()
        thread.join(timeout=5)


def fetch(server: Server, destination: Path | None = None, attempts: int = 3, **options: object) -> Path:
    settings = {"sha256": SHA256, "attempts": attempts, "first_pause": 0.0, "timeout": 5.0} | options
    return fetch_released(destination, server.url, **settings)  # type: ignore[arg-type]


def test_into_the_cache_with_progress(server: Server) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch(server, progress=lambda done, total: seen.append((done, total)))
    assert path == cache_path()
    assert path.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert [p.name for p in path.parent.iterdir()] == ["curves.csv.gz"]


def test_already_there_asks_nobody(server: Server) -> None:
    fetch(server)
    fetch(server)
    assert len(server.ranges) == 1


def test_a_spoilt_cache_is_replaced(server: Server) -> None:
    cache_path().parent.mkdir(parents=True)
    cache_path().write_bytes(b"half of it")
    assert fetch(server).read_bytes() == BODY


def test_a_dropped_connection_is_continued(server: Server) -> None:
    server.break_after = [100_000, 50_000]
    assert fetch(server).read_bytes() == BODY
    assert server.ranges == [None, "bytes=100000-", "bytes=150000-"]
    assert server.sent == [100_000, 50_000, len(BODY) - 150_000]


def test_interrupted_and_resumed_by_a_second_call(server: Server) -> None:
    def interrupt(done: int, _: int | None) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(server, progress=interrupt)
    part = cache_path().with_name("curves.csv.gz.part")
    have = part.stat().st_size
    assert 0 < have < len(BODY)
    server.sent.clear()
    assert fetch(server).read_bytes() == BODY
    assert server.ranges == [None, f"bytes={have}-"]
    assert server.sent == [len(BODY) - have]
    assert not part.exists()


def test_truncated_every_time(server: Server) -> None:
    server.break_after = [1000, 1000, 1000]
    with pytest.raises(FetchError, match=f"closed after 3,000 of {len(BODY):,} bytes") as caught:
        fetch(server)
    assert "\n" not in str(caught.value)
    assert str(cache_path()) in str(caught.value)
    assert "by hand" in str(caught.value)
    assert not cache_path().exists()


def test_wrong_hash_leaves_nothing(server: Server) -> None:
    server.body = b"something else"
    with pytest.raises(FetchError, match="sha256"):
        fetch(server)
    assert list(cache_path().parent.iterdir()) == []
    assert len(server.ranges) == 1


def test_a_part_of_something_else_is_fetched_anew(server: Server) -> None:
    cache_path().parent.mkdir(parents=True)
    cache_path().with_name("curves.csv.gz.part").write_bytes(b"another file")
    assert fetch(server).read_bytes() == BODY
    assert server.ranges == ["bytes=12-", None]


def test_a_complete_part_needs_no_server(server: Server) -> None:
    cache_path().parent.mkdir(parents=True)
    cache_path().with_name("curves.csv.gz.part").write_bytes(BODY)
    assert fetch(server).read_bytes() == BODY
    assert server.ranges == []


def test_a_part_too_long_starts_over(server: Server) -> None:
    cache_path().parent.mkdir(parents=True)
    cache_path().with_name("curves.csv.gz.part").write_bytes(BODY + b"more")
    assert fetch(server).read_bytes() == BODY
    assert server.ranges == [f"bytes={len(BODY) + 4}-", None]


def test_a_server_without_ranges(server: Server) -> None:
    server.knows_ranges = False
    server.break_after = [100_000]
    assert fetch(server).read_bytes() == BODY
    assert server.ranges == [None, "bytes=100000-"]
    assert server.sent == [100_000, len(BODY)]


def test_busy_is_tried_again_and_not_found_is_not(server: Server) -> None:
    server.errors = [503, 503]
    assert fetch(server).read_bytes() == BODY
    server.errors = [404]
    with pytest.raises(FetchError, match="answered 404 Not Found"):
        fetch(server, sha256="0" * 64)
    assert len(server.ranges) == 4


def test_no_network() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(FetchError, match=r"could not be downloaded \(connection refused\)"):
        fetch(Server(url=f"http://127.0.0.1:{port}/x"))
    assert not cache_path().exists()


def test_a_silent_server_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        with pytest.raises(FetchError, match="did not answer in time"):
            fetch(Server(url=url), attempts=1, timeout=0.2)


def test_destinations(server: Server, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert fetch(server, tmp_path / "folder") == tmp_path / "folder" / "curves.csv.gz"
    assert fetch(server, tmp_path / "new" / "mine.csv.gz").read_bytes() == BODY
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(InputError, match="exists and is not the released table"):
        fetch(server, tmp_path / "precious")
    assert (tmp_path / "precious").read_text() == "mine"
    with pytest.raises(InputError, match="cannot be written"):
        fetch(server, tmp_path / "precious" / "below")


def test_only_http() -> None:
    with pytest.raises(InputError, match="must begin with http"):
        fetch_released(url="file:///etc/hostname")


def test_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_path() == tmp_path / "cache" / "clark2022" / "curves.csv.gz"
    monkeypatch.delenv("ROUTELAW_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_path() == tmp_path / "xdg" / "routelaw" / "clark2022" / "curves.csv.gz"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_path() == tmp_path / "home" / ".cache" / "routelaw" / "clark2022" / "curves.csv.gz"


def test_find_released(released_path: Path) -> None:
    assert find_released() is None
    cache_path().parent.mkdir(parents=True)
    cache_path().write_bytes(released_path.read_bytes()[:-1])
    assert find_released() is None
    cache_path().write_bytes(released_path.read_bytes())
    assert find_released() == cache_path()
