"""Files that say of which log they are and up to where, with a checksum: what caches are made of.

A file is written whole or not at all. One that is torn, altered, of another log, or ahead of the
log it belongs to is skipped with a reason.
"""

import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from allotment_proto.codec import UNREADABLE

_FORMAT = 1
_TORN = "writing-"
_TORN_S = 3600
"""After so long no other process is still writing a file."""


class Ignored(msgspec.Struct, frozen=True):
    """A file that was skipped. `reason`: "corrupt", "another_log", "newer_than_log", "gone"
    or "another_history".
    """

    path: str
    reason: str
    message: str


class _Header(msgspec.Struct, frozen=True):
    """The first line of a file, as JSON; the payload follows."""

    format: int
    log: str
    seq: int
    bytes: int
    sha256: str
    record: str = ""
    """The digest of the record at `seq`, where the file says which it was made from."""


class Sealed(NamedTuple):
    """A sound file: up to where, its content, the digest of the record at `seq` ("": unsaid)."""

    seq: int
    payload: bytes
    record: str


def seal(path: Path, log_identity: str, seq: int, payload: bytes, record: str = "") -> None:
    """Write `payload`, which belongs to the log up to `seq`. Raises OSError.

    What a writer left in the directory that was interrupted long ago is removed.
    """
    directory = path.parent
    directory.mkdir(parents=True, exist_ok=True)
    for torn in directory.glob(f"{_TORN}*"):
        if age_s(torn) > _TORN_S:
            torn.unlink(missing_ok=True)
    digest = hashlib.sha256(payload).hexdigest()
    header = _Header(_FORMAT, log_identity, seq, len(payload), digest, record)
    handle, temporary = tempfile.mkstemp(prefix=_TORN, dir=directory)
    try:
        with open(handle, "wb") as file:
            file.write(msgspec.json.encode(header) + b"\n")
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def age_s(path: Path) -> float:
    """How long ago a file was written; 0 of one that is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0


def unseal(path: Path, log_identity: str, last_seq: int) -> Sealed | Ignored:
    """What a file holds; of a log that has reached `last_seq`."""
    try:
        line, _, payload = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return Ignored(str(path), "gone", "another process removed it")
    try:
        header = msgspec.json.decode(line, type=_Header)
    except UNREADABLE as error:
        return Ignored(str(path), "corrupt", f"its header cannot be read: {error}")
    if header.format != _FORMAT:
        return Ignored(str(path), "corrupt", f"format {header.format}, not {_FORMAT}")
    if header.bytes != len(payload):
        found = f"{len(payload)} bytes, not the {header.bytes} written"
        return Ignored(str(path), "corrupt", found)
    if header.sha256 != hashlib.sha256(payload).hexdigest():
        return Ignored(str(path), "corrupt", "its checksum does not fit")
    if header.log != log_identity:
        return Ignored(str(path), "another_log", f"{header.log}, not {log_identity}")
    if header.seq > last_seq:
        return Ignored(str(path), "newer_than_log", f"at {header.seq}, the log at {last_seq}")
    return Sealed(header.seq, payload, header.record)
