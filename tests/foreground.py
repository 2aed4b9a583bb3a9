"""Processes that hear their signals, however the tests themselves were started."""

import signal


def in_the_foreground() -> None:
    """Given as `preexec_fn`. Whoever started the tests may have signals ignored (a shell's `&`:
    SIGINT, nohup: SIGHUP), and children inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
