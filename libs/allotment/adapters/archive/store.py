"""Where archives are: a directory, or a bucket of a service that speaks S3, named by a URL.

    /var/lib/allotment/archive    file:///var/lib/allotment/archive    s3://bucket/prefix

For S3 the usual variables name endpoint, region and credentials: AWS_ENDPOINT_URL, AWS_REGION,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or those of a pod's role.
"""

import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store

from allotment.adapters.archive.file import SegmentFile
from allotment.adapters.archive.index import SUFFIX

CONNECT_WITHIN, ANSWER_WITHIN, RETRY_WITHIN = (
    timedelta(seconds=3),
    timedelta(seconds=60),
    timedelta(seconds=5),
)
"""So an archive that does not answer is reported within seconds."""
RETRIES = 2
CHUNK_BYTES = 8 << 20
"""A part of an upload; S3 takes 10,000 of them."""
ACCEPTED = "a directory, file:///DIRECTORY or s3://BUCKET/PREFIX"
_NAME = re.compile(r"segment-(\d{8,})-(\d+)-(\d+)\.allotment")

T = TypeVar("T")


class ArchiveUnreachable(Exception):
    """Raised when the place of the archive is not there, does not answer, or refuses; the text
    names it and what to check.
    """


class Stored(NamedTuple):
    """A file in the archive, by its name, and when its index was written, 0 if it has none."""

    number: int
    first_seq: int
    last_seq: int
    size_bytes: int
    written_ms: int
    name: str
    index_ms: int = 0


class Store:
    """The files at a URL. Every method may block, and raises ArchiveUnreachable."""

    def __init__(self, url: str, *, makes: bool = False) -> None:
        """`makes`: the directory, where there is none. Raises ValueError for another URL."""
        self.url = normal(url)
        self._directory: Path | None = None
        if self.url.startswith("file://"):
            self._directory = Path(self.url.removeprefix("file://"))
        self._makes = makes
        self._opened: LocalStore | S3Store | None = None

    def list(self) -> list[Stored]:
        """All archived segments, the oldest first."""
        listed = self._try("listed", lambda store: list(obstore.list(store)))
        entries = [entry for batch in listed for entry in batch]
        written = {each["path"]: int(each["last_modified"].timestamp() * 1000) for each in entries}
        found = []
        for path, size in ((entry["path"], entry["size"]) for entry in entries):
            if name := _NAME.fullmatch(path):
                number, first, last = map(int, name.groups())
                index_ms = written.get(path + SUFFIX, 0)
                found.append(Stored(number, first, last, size, written[path], path, index_ms))
        return sorted(found)

    def put(self, path: Path, name: str) -> None:
        """Store a local file under a name, whole or not at all."""
        self._try(
            f"written ({name})",
            lambda store: obstore.put(store, name, path, chunk_size=CHUNK_BYTES, max_concurrency=2),
        )
        if (directory := self._directory) is not None:
            self._try(f"written ({name})", lambda _: _sync(directory / name))

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Some bytes of a file."""
        return self._try(
            f"read ({name})",
            lambda store: bytes(obstore.get_range(store, name, start=offset, length=size)),
        )

    def size(self, name: str) -> int | None:
        """How large a file is, None where there is none."""
        try:
            return int(self._try(f"read ({name})", lambda store: obstore.head(store, name))["size"])
        except ArchiveUnreachable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def delete(self, name: str) -> None:
        self._try(f"deleted ({name})", lambda store: obstore.delete(store, name))

    def uri(self, name: str) -> str:
        """The address of a file."""
        return f"{self.url}/{name}"

    def open(self, name: str, size: int) -> SegmentFile:
        """A file to be read in pieces."""
        return SegmentFile(name, size, lambda offset, length: self.read(name, offset, length))

    def _try(self, done: str, work: Callable[[Any], T]) -> T:
        try:
            if self._opened is None:
                self._opened = self._open()
            return work(self._opened)
        except (BaseError, OSError, ValueError) as error:
            reason = str(error).split("\n\nDebug source:")[0].strip()
            raise ArchiveUnreachable(
                f"the archive at {self.url} cannot be {done}: {reason}. {self._remedy}"
            ) from error

    @property
    def _remedy(self) -> str:
        if self._directory is not None:
            return "Is the directory there, with room, and ours to write?"
        endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or "AWS"
        return (
            f"Is {endpoint} reachable, does the bucket exist, and may these credentials use it"
            " (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL)?"
        )

    def _open(self) -> LocalStore | S3Store:
        if self._directory is not None:
            if not self._makes and not self._directory.is_dir():
                raise FileNotFoundError(f"{self._directory} is no directory")
            return LocalStore(self._directory, mkdir=True)
        endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
        return S3Store.from_url(
            self.url,
            client_options={
                "connect_timeout": CONNECT_WITHIN,
                "timeout": ANSWER_WITHIN,
                "allow_http": endpoint.startswith("http://"),
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_WITHIN},
        )


def normal(url: str) -> str:
    """The URL of an archive: a plain path becomes one. Raises ValueError."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        if not url.strip():
            raise ValueError(f"the archive {url!r} is no place: give {ACCEPTED}")
        return f"file://{Path(url).expanduser().absolute()}"
    if (scheme == "file" and not rest.startswith("/")) or scheme not in ("file", "s3") or not rest:
        raise ValueError(f"the archive {url!r} is of no known kind: give {ACCEPTED}")
    return url.rstrip("/")


def _sync(path: Path) -> None:
    """Have a file and its name on the disk, so that what it is a copy of may go."""
    for each in (path, path.parent):
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
