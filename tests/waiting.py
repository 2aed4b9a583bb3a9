"""Waiting in tests: for what is meant, and no longer than it takes to know that it never comes.

How long something takes says how busy the machine is, so no test claims anything about it: the
bound is there to end a test that hangs with a traceback of where it hangs.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import anyio

PATIENCE_S = 200.0
"""Below pytest's own limit for a test, which ends the whole run's worker."""
POLL_S = 0.02


def patience() -> AbstractContextManager[anyio.CancelScope]:
    """Bounds the time that a test may wait for what comes at once on an idle machine."""
    return anyio.fail_after(PATIENCE_S)


async def until(holds: Callable[[], object]) -> None:
    """Wait for something that nobody announces; fails the test if it never comes."""
    with patience():
        while not holds():  # noqa: ASYNC110 - nobody announces it
            await anyio.sleep(POLL_S)


def until_so(holds: Callable[[], object]) -> None:
    """The same where no event loop runs."""
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, "it never came to that"
        time.sleep(POLL_S)
