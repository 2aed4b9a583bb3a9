"""The text of a file that the user gave; an error for another encoding names the line."""

from pathlib import Path

from allotment.adapters.telemetry.log import file_trouble
from allotment.core.errors import AllotError

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: Path) -> str:
    """Raises `AllotError` for a file that cannot be read or is not UTF-8."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        if error.object.startswith(_UTF_16):
            raise _other_encoding(path, 1, "it begins as UTF-16 does") from None
        line = error.object.count(b"\n", 0, error.start) + 1
        why = f"byte 0x{error.object[error.start]:02x} is no part of it"
        raise _other_encoding(path, line, why) from None
    except OSError as error:
        raise AllotError(f"{path} cannot be read: {file_trouble(error)}") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _other_encoding(path, line, "there is a character U+0000")
    return text


def _other_encoding(path: Path, line: int, why: str) -> AllotError:
    return AllotError(f"{path}:{line}: not UTF-8: {why}", "save the file as UTF-8")
