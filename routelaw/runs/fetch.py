"""The paper's released losses, and other public tables, downloaded once into the user's cache.

The tables are their authors' and no part of this package: each is fetched on request and checked by hash. A download is
continued where it broke off, checked for its length, and tried again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from routelaw.errors import InputError
from routelaw.files import cache_folder, made_folder, sha256_of
from routelaw.runs.public import public_tables
from routelaw.specs.names import nearest_hint

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


RELEASED_URL = "https://raw.githubusercontent.com/google-deepmind/scaling_laws_for_routing/main/data/curves.csv.gz"
RELEASED_SHA256 = "c03e7531add85e594f368d33bac4a0220280be858a7ed12d147cf73af6a3819f"
FILE_NAME = "curves.csv.gz"


class FetchError(InputError):
    """The download failed. The sentence says why, and how to do without it."""


@dataclass(frozen=True)
class Released:
    """A table that somebody released, as it is downloaded."""

    name: str
    title: str
    url: str
    sha256: str
    license: str
    file_name: str

    @property
    def kept(self) -> Path:
        """Where it is kept once it is fetched."""
        return cache_folder() / self.name / self.file_name

    def found(self) -> Path | None:
        """The cached table if it is there and whole."""
        return self.kept if self.kept.is_file() and sha256_of(self.kept) == self.sha256 else None


CLARK2022 = Released(
    "clark2022", "the losses released with Clark et al. 2022", RELEASED_URL, RELEASED_SHA256, "CC-BY 4.0", FILE_NAME
)


def released_tables() -> dict[str, Released]:
    """Tables that can be fetched, by name."""
    public = [
        Released(table.name, table.title, table.url, table.sha256, table.license, table.file_name)
        for table in public_tables().values()
        if table.url
    ]
    return {table.name: table for table in (CLARK2022, *public)}


def released_table(name: str) -> Released:
    tables = released_tables()
    if name not in tables:
        raise InputError(
            f"there is no public table {name!r}{nearest_hint(name, tables)}; those that can be fetched are "
            f"{', '.join(tables)}."
        )
    return tables[name]


def cache_path() -> Path:
    """Where the paper's table is kept."""
    return CLARK2022.kept


def find_released() -> Path | None:
    """The cached table if it is there and whole."""
    return CLARK2022.found()


def fetch_released(
    destination: Path | None = None,
    url: str | None = None,
    sha256: str | None = None,
    progress: Progress | None = None,
    *,
    released: Released = CLARK2022,
    attempts: int = 4,
    first_pause: float = 0.5,
    timeout: float = 30.0,
) -> Path:
    """Download a table (the paper's unless told) to `destination`, a file, a directory, or by default the cache, and
    return its path. `url` and `sha256` are those of a mirror.

    A file that is already there and right is not fetched again. What an interrupted download left behind in
    `….part` is continued. A dropped connection is tried again, with pauses that double.
    """
    url, sha256 = url or released.url, sha256 or released.sha256
    target = released.kept if destination is None else Path(destination)
    if target.is_dir():
        target = target / released.file_name
    if target.is_file() and sha256_of(target) == sha256:
        return target
    if destination is not None and target.exists():
        raise InputError(f"{target}: the file exists and is not the released table; remove it or choose another name.")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # brackets that do not close, or a port that is none
        usable = False
    if not usable:
        raise InputError(f"The address to fetch from must begin with http:// or https:// and name a host, not {url!r}.")

    part = target.with_name(target.name + ".part")
    try:
        if destination is None:
            target.parent.mkdir(parents=True, exist_ok=True)  # the cache may stay; a folder that was named may not
        with made_folder(target.parent):
            if not (part.is_file() and sha256_of(part) == sha256):
                _download_checked(url, part, sha256, progress, attempts, first_pause, timeout)
            part.replace(target)
    except (Dropped, Refused) as error:
        raise FetchError(f"{url} could not be downloaded ({error}); {_by_hand(url, released.url, target)}.") from None
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror}).") from None
    return target


def _download_checked(
    url: str,
    part: Path,
    sha256: str,
    progress: Progress | None,
    attempts: int,
    first_pause: float,
    timeout: float,
) -> None:
    """A wrong hash after continuing an old part may be that part's fault, so the whole is then fetched once more."""
    continued = part.is_file()
    for _ in range(2 if continued else 1):
        download(url, part, progress, attempts=attempts, first_pause=first_pause, timeout=timeout)
        found = sha256_of(part)
        if found == sha256:
            return
        part.unlink()
    raise Refused(f"what arrived has sha256 {found[:12]}… instead of {sha256[:12]}… and was removed")


def _by_hand(url: str, original: str, target: Path) -> str:
    address = original if url == original else f"{original} or a copy of it"
    return f"try again later, or download {address} by hand to {target}, or give a command the path of your copy"
