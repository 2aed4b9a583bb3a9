"""The files that a run leaves behind: never one that it reads, and a log whole or not at all."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from allotment.adapters.log import exported
from allotment.adapters.telemetry.log import file_trouble
from allotment.core.errors import AllotError
from allotment.core.logport import Record
from allotment_lab.engine import Sink
from allotment_proto.codec import encode
from allotment_proto.events import Envelope


def refuse_overwriting(
    outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]
) -> None:
    """Raises AllotError if an output is a file that is read, or another output."""
    taken = {name: path for name, path in inputs.items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        for other, known in taken.items():
            if _is_same(path, known):
                raise AllotError(f"{name} and {other} are the same file, {path}", "give two files")
        taken[name] = path


def _is_same(one: Path, other: Path) -> bool:
    """Also by another way or another name, and also if the file is not there yet."""
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, RuntimeError, ValueError):  # one is not there, or no path at all
        return False


@contextmanager
def kept(path: Path | None) -> Iterator[Sink | None]:
    """Writes every record of a run to a file, as `allot log -o jsonl` would. The file gets its name
    when the run is over; until then one that had it stays as it is.
    """
    if path is None:
        yield None
        return
    target = path.resolve()
    is_device = target.exists() and not target.is_file()  # as /dev/stdout: nothing to rename
    written = target if is_device else target.with_name(f".{target.name}.{os.getpid()}.part")
    out: TextIO | None = None
    try:
        with _writing(path):
            out = written.open("w", encoding="utf-8")
        yield _Keeper(out, path).keep
        with _writing(path):
            out.close()
            if not is_device:
                written.replace(target)
    finally:
        if out is not None:
            with suppress(OSError):  # it was said that the file cannot be written
                out.close()
        if not is_device:
            written.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A disk may be full at any time."""
    try:
        yield
    except OSError as error:
        raise AllotError(f"{path} cannot be written: {file_trouble(error)}") from error


class _Keeper:
    def __init__(self, out: TextIO, path: Path) -> None:
        self._out = out
        self._path = path
        self._seq = 0

    def keep(self, subject: str, envelope: Envelope) -> None:
        self._seq += 1
        time_ns = envelope.at_ms * 1_000_000
        record = Record(self._seq, subject, encode(envelope), time_ns, f"lab/{self._seq}")
        with _writing(self._path):
            self._out.write(exported.encode(record) + "\n")
