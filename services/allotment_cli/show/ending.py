"""How a command ends when it is stopped, or when nothing reads its output any longer.

Ctrl-C, SIGTERM and SIGHUP unwind it alike, so that the processes, files and directories that it
made are gone. Its exit code is 128 and the signal's number, as with shells: never one of those that
answer a question.
"""

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import click

from allotment.core.errors import AllotError, innermost
from allotment_cli.show.output import note

UNANSWERED = 2
"""The exit code of a command that could not answer."""
SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""In addition to SIGINT, which Python itself turns into an exception."""


@contextlib.contextmanager
def ended_in_order(ctx: click.Context) -> Iterator[None]:
    """Run a command's body; what stops it becomes an exit code."""
    came = signal.SIGINT

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = signal.Signals(number)
        on_interrupt = signal.getsignal(signal.SIGINT)  # asyncio's cancels its main task
        if callable(on_interrupt):
            on_interrupt(signal.SIGINT, frame)

    try:
        with _interruptible(), _handled_by(stop):
            yield
    except AllotError as error:
        complain(error)
        ctx.exit(UNANSWERED)
    except (KeyboardInterrupt, OSError, BaseExceptionGroup) as error:
        match innermost(error):
            case KeyboardInterrupt():
                with contextlib.suppress(OSError):  # the reader of that may be stopped as well
                    note(f"allot: stopped by {came.name}")
                _say_no_more()
                ctx.exit(128 + came)
            case BrokenPipeError():
                _say_no_more()
                ctx.exit(128 + signal.SIGPIPE)
            case OSError(errno=errno.ENOSPC, filename=None) as full:
                _say_no_more()
                complain(AllotError(f"the output cannot be written: {full.strerror}"))
                ctx.exit(UNANSWERED)
            case _:
                raise


def complain(error: AllotError) -> None:
    """A line each for what is wrong and what to do, to stderr."""
    for text in filter(None, (error.message, *error.more, error.remedy)):
        note(f"allot: {text}")


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Have a handler for SIGINT, without which asyncio installs none of its own.

    Shells start background jobs with SIGINT ignored, so that Ctrl-C does not end them. Then the
    signal is blocked instead, which its handler never sees.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that waits is dropped
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextlib.contextmanager
def _handled_by(stop: "signal._HANDLER") -> Iterator[None]:
    """Let `stop` handle the signals that are not ignored; a command's own handlers stay."""
    is_main = threading.current_thread() is threading.main_thread()
    taken = [number for number in SIGNALS if is_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is stop:
                signal.signal(number, signal.SIG_DFL)


def _say_no_more() -> None:
    """Python flushes output when it ends, and would complain again where nothing reads it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
