"""An exported log, for commands: `allotment.adapters.log.exported` with errors as `CliError`."""

from collections.abc import Iterator
from pathlib import Path

from allotment.adapters.log import exported
from allotment.adapters.log.exported import ExportedLogError, Line, encode
from allotment.core.logport import Record
from allotment_cli.show.errors import CliError

__all__ = ["Line", "decode", "encode", "read_file"]


def decode(text: str, place: str) -> Record:
    """Raises `CliError` naming the place for a line that is not one of an exported log."""
    try:
        return exported.decode(text, place)
    except ExportedLogError as error:
        raise CliError(error.message, error.remedy) from error


def read_file(path: Path) -> Iterator[Record]:
    """The records of a file in order. Raises `CliError` for a broken line or a gap."""
    try:
        yield from exported.read_file(path)
    except ExportedLogError as error:
        raise CliError(error.message, error.remedy) from error
