"""The paper's released losses, downloaded once into the user's cache.

The table is the authors' (CC-BY 4.0) and is not part of this package: it is fetched on request and checked by hash.
"""

from pathlib import Path
from urllib.parse import urlsplit

from routelaw.errors import InputError
from routelaw.files import cache_folder, made_folder, sha256_of
from routelaw.runs.download import Dropped, Progress, Refused, download

RELEASED_URL = "https://raw.githubusercontent.com/google-deepmind/scaling_laws_for_routing/main/data/curves.csv.gz"
RELEASED_SHA256 = "c03e7531add85e594f368d33bac4a0220280be858a7ed12d147cf73af6a3819f"
FILE_NAME = "curves.csv.gz"


class FetchError(InputError):
    """The download failed. The sentence says why, and how to do without it."""


def cache_path() -> Path:
    """Where the table is kept."""
    return cache_folder() / "clark2022" / FILE_NAME


def find_released() -> Path | None:
    """The cached table if it is there and whole."""
    path = cache_path()
    return path if path.is_file() and sha256_of(path) == RELEASED_SHA256 else None


def fetch_released(
    destination: Path | None = None,
    url: str = RELEASED_URL,
    sha256: str = RELEASED_SHA256,
    progress: Progress | None = None,
    *,
    attempts: int = 4,
    first_pause: float = 0.5,
    timeout: float = 30.0,
) -> Path:
    """Download the table to `destination` (a file, a directory, or by default the cache) and return its path.

    A file that is already there and right is not fetched again. What an interrupted download left behind in
    `….part` is continued. A dropped connection is tried again, with pauses that double.
    """
    target = cache_path() if destination is None else Path(destination)
    if target.is_dir():
        target = target / FILE_NAME
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
        raise FetchError(f"{url} could not be downloaded ({error}); {_by_hand(url, target)}.") from None
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


def _by_hand(url: str, target: Path) -> str:
    address = RELEASED_URL if url == RELEASED_URL else f"{RELEASED_URL} or a copy of it"
    return f"try again later, or download {address} by hand to {target}, or give a command the path of your copy"
