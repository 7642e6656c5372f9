"""One file over HTTP, patiently: continued where it broke off, checked for its length, tried again."""

import time
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

Progress = Callable[[int, int | None], None]
"""Called with the bytes at hand and the bytes expected (None when the server does not say)."""

CHUNK = 1 << 16
WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504})


class Dropped(Exception):
    """The connection failed; another try may succeed."""


class Refused(Exception):
    """The server answered, and trying again would not change the answer."""


def download(
    url: str,
    part: Path,
    progress: Progress | None = None,
    *,
    attempts: int,
    first_pause: float,
    timeout: float,
) -> None:
    """Fetch `url` into `part`, keeping what is there. After a failure the part stays, for the next time."""
    for attempt in range(attempts):
        try:
            return _continue_download(url, part, progress, timeout)
        except Dropped:
            if attempt + 1 == attempts:
                raise
            time.sleep(first_pause * 2**attempt)
    raise Dropped("no attempt was allowed")


def _continue_download(url: str, part: Path, progress: Progress | None, timeout: float) -> None:
    have = part.stat().st_size if part.is_file() else 0
    # Without "identity" a server may compress on the way, and neither length nor hash would fit.
    headers = {"User-Agent": "routelaw", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with _open(Request(url, headers=headers), part, timeout) as response:
        _receive(response, part, have, progress)


def _open(request: Request, part: Path, timeout: float) -> HTTPResponse:
    try:
        return urlopen(request, timeout=timeout)
    except HTTPError as error:
        error.close()
        if error.code == 416:
            part.unlink(missing_ok=True)
            raise Dropped("the server cannot continue the download") from None
        answer = f"the server answered {error.code} {error.reason}"
        raise (Dropped if error.code in WORTH_ANOTHER_TRY else Refused)(answer) from None
    except URLError as error:
        raise Dropped(_in_words(error.reason)) from None
    except (OSError, HTTPException) as error:
        raise Dropped(_in_words(error)) from None


def _receive(response: HTTPResponse, part: Path, have: int, progress: Progress | None) -> None:
    """Append if the server continues exactly where the part ends, else start over."""
    continues = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
    if response.status == 206 and not continues:
        part.unlink(missing_ok=True)
        raise Dropped("the server continued in another place than asked")
    done = have if continues else 0
    length = response.headers.get("Content-Length")
    expected = done + int(length) if length is not None and length.isdigit() else None
    with part.open("ab" if continues else "wb") as file:
        while chunk := _read(response):
            file.write(chunk)
            done += len(chunk)
            if progress:
                progress(done, expected)
    if expected is not None and done != expected:
        raise Dropped(f"the connection closed after {done:,} of {expected:,} bytes")


def _read(response: HTTPResponse) -> bytes:
    """Apart from writing, so that a lost connection is not taken for a full disk."""
    try:
        return response.read(CHUNK)
    except (OSError, HTTPException) as error:
        raise Dropped(_in_words(error)) from None


def _in_words(reason: object) -> str:
    if isinstance(reason, TimeoutError):
        return "the server did not answer in time"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror[0].lower() + reason.strerror[1:]
    return str(reason) or type(reason).__name__
