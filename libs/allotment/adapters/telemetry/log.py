"""Structured logs: one line an entry, a fixed message, everything that varies as fields.

A line is a JSON object (`ts level service instance msg`, then the fields, and `trace_id span_id`
inside a span) or the same as text for people. Lines of libraries that use `logging` come out the
same way. A value that cannot be encoded is written as its repr: a log line never fails its writer.
"""

import contextlib
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_encoder = msgspec.json.Encoder(enc_hook=repr, decimal_format="number")
_RESERVED = frozenset({"ts", "level", "service", "instance", "msg"})


class LogSink:
    """Where the lines of one process go. `clock` returns nanoseconds since the epoch."""

    def __init__(
        self,
        service: str,
        instance: str,
        form: str = "json",
        level: str = "info",
        stream: TextIO | None = None,
        clock: Callable[[], int] = time.time_ns,
        trace_fields: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.level = LEVELS[level]
        self.trace_fields = trace_fields
        self._head = {"service": service, "instance": instance}
        self._text = form == "text"
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock

    def write(self, level: str, msg: str, fields: Mapping[str, Any]) -> None:
        """Write one line if `level` is important enough."""
        if LEVELS[level] < self.level:
            return
        if self.trace_fields is not None:
            fields = {**fields, **self.trace_fields()}
        seconds, rest = divmod(self._clock(), 1_000_000_000)
        day = datetime.fromtimestamp(seconds, UTC)
        ts = f"{day:%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"
        line = self._as_text(ts, level, msg, fields) if self._text else ""
        if not line:
            entry: dict[str, Any] = {"ts": ts, "level": level, **self._head, "msg": msg}
            for name, value in fields.items():
                entry[name + "_" if name in _RESERVED else name] = value
            line = _encode(entry)
        self._stream.write(line + "\n")
        self._stream.flush()

    def _as_text(self, ts: str, level: str, msg: str, fields: Mapping[str, Any]) -> str:
        parts = [ts, level.upper().ljust(7), self._head["service"], msg]
        trace = ""
        for name, value in fields.items():
            if name == "traceback":
                trace = "\n" + str(value).rstrip()
            else:
                parts.append(f"{name}={value if isinstance(value, str) else _encode(value)}")
        return printable(" ".join(parts)) + trace


class Logger:
    """Writes to a sink with some fields already bound. Cheap to make, safe to share."""

    __slots__ = ("_fields", "_sink")

    def __init__(self, sink: LogSink, fields: Mapping[str, Any] | None = None) -> None:
        self._sink = sink
        self._fields = dict(fields or {})

    def bind(self, **fields: Any) -> "Logger":
        """A logger whose every line also carries these fields."""
        return Logger(self._sink, {**self._fields, **fields})

    def debug(self, msg: str, /, **fields: Any) -> None:
        """Details for debugging."""
        self._sink.write("debug", msg, {**self._fields, **fields})

    def info(self, msg: str, /, **fields: Any) -> None:
        """What an operator should know."""
        self._sink.write("info", msg, {**self._fields, **fields})

    def warning(self, msg: str, /, **fields: Any) -> None:
        """Something is wrong and the service continues."""
        self._sink.write("warning", msg, {**self._fields, **fields})

    def error(self, msg: str, /, error: BaseException | None = None, **fields: Any) -> None:
        """Something failed; with `error`, its text and traceback become fields."""
        if error is not None:
            fields["error"] = one_line(error)
            fields["traceback"] = "".join(traceback.format_exception(error))
        self._sink.write("error", msg, {**self._fields, **fields})


class _Forward(logging.Handler):
    """Lines of libraries, as ours."""

    def __init__(self, sink: LogSink) -> None:
        super().__init__(level=sink.level)
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"logger": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = one_line(record.exc_info[1])
            fields["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))
        level = next((n for n, no in reversed(LEVELS.items()) if record.levelno >= no), "debug")
        self._sink.write(level, record.getMessage(), fields)


@contextlib.contextmanager
def library_lines(sink: LogSink) -> Iterator[None]:
    """While open, `logging`'s root writes to the sink, libraries no finer than warnings or debug.

    A library's info lines tell of its inner life and drown ours; with --log-level debug they come.
    """
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    root.handlers = [_Forward(sink)]
    root.setLevel(sink.level if sink.level <= logging.DEBUG else max(sink.level, logging.WARNING))
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(level)


def printable(text: str) -> str:
    """The text with every character escaped that a terminal does not print as itself: controls,
    which can move, colour and forge lines, marks that turn the direction of writing, halves of
    characters. A text that was printable before comes back as it is.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def one_line(error: BaseException) -> str:
    """An error in one line: its kind and text; a group that holds a single error is that error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(one_line(part) for part in error.exceptions)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def error_text(error: BaseException) -> str:
    """An error for people to read: its text, or where it has none what its kind means."""
    text = " ".join(str(error).split()).removeprefix("nats: ")
    if isinstance(error, TimeoutError):
        return text if text and text != "timeout" else "no answer in time"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno).lower()
    if text:
        return text
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
    return words.removesuffix(" error").removesuffix(" exception") or "unknown error"


def file_trouble(error: Exception) -> str:
    """Why a file cannot be read or written, without its path: the caller names the file."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def _encode(value: object) -> str:
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):  # odd keys, lone surrogates, huge ints
        return _encoder.encode(repr(value).encode("utf-8", "backslashreplace").decode()).decode()
