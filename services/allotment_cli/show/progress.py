"""How far something is that takes its time: a bar on stderr, once it has taken a second; or a word
on what is waited for, where the progress is unknown.

Only where stderr is a terminal; what is read by a program gets no bar.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Timer
from typing import Protocol

import click

from allotment_cli.show.output import note

SHOWN_AFTER_S = 1.0
LOOKED_AT_EVERY_S = 0.1

Advance = Callable[[int], None]
"""Called with how much was done since the last call."""


def in_silence(done: int) -> None:
    """No progress is shown."""


@contextmanager
def progress(
    title: str, total: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Advance]:
    """A bar while the body runs, of `total` units of work."""
    if not sys.stderr.isatty():
        yield in_silence
        return
    with ExitStack() as shown:
        bar: Advance = in_silence
        done, due = 0, clock() + SHOWN_AFTER_S

        def advance(more: int) -> None:
            nonlocal bar, done, due
            done += more
            if (now := clock()) < due:
                return
            if bar is in_silence:
                bar = shown.enter_context(_bar(title, total))
            bar(done)
            done, due = 0, now + LOOKED_AT_EVERY_S

        yield advance


class Timed(Protocol):
    """What acts once its time has come, if it is not cancelled before."""

    def start(self) -> None: ...

    def cancel(self) -> None: ...

    def join(self) -> None: ...


def _timer(after_s: float, act: Callable[[], None]) -> Timer:
    made = Timer(after_s, act)
    made.daemon = True
    return made


@contextmanager
def waiting(
    text: str, timer: Callable[[float, Callable[[], None]], Timed] = _timer
) -> Iterator[None]:
    """``text …`` while the body runs, whether it waits or works."""
    if not sys.stderr.isatty():
        yield
        return
    shown: list[str] = []

    def show() -> None:
        shown.append(f"{text} …")
        click.echo(shown[0], err=True, nl=False)

    due = timer(SHOWN_AFTER_S, show)
    due.start()
    try:
        yield
    finally:
        due.cancel()
        due.join()
        if shown:
            click.echo("\r" + " " * len(shown[0]) + "\r", err=True, nl=False)


@contextmanager
def _bar(title: str, total: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    # What is printed meanwhile goes above the bar, unless a program reads it.
    to_screen = sys.stdout.isatty()
    with Progress(console=console, transient=True, redirect_stdout=to_screen) as bars:
        task = bars.add_task(title, total=total)
        yield lambda done: bars.advance(task, done)


class Terminal:
    """Shows what is said about an answer on stderr: a `Screen` of `allotment.answers.source`."""

    def note(self, text: str) -> None:
        note(text)

    def progress(self, title: str, total: int) -> AbstractContextManager[Advance]:
        return progress(title, total)

    def waiting(self, text: str) -> AbstractContextManager[None]:
        return waiting(text)


TERMINAL = Terminal()
