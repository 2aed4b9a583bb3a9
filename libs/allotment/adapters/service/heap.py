"""The garbage collector in services and large folds: both make few cycles, and a fold keeps nearly
all it makes. Looking through it again and again while it grows would take as long as making it.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS, YOUNG_PASSES, MIDDLE_PASSES = 10_000, 10, 10
"""After how many new objects the collector looks through them, and how often before it looks
through older ones. With Python's own 700 a busy binder spent one CPU second in twenty on looking,
several times a batch.
"""


def collect_seldom() -> None:
    """For the life of a service: what is garbage by count is gone at once as ever."""
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_PASSES, MIDDLE_PASSES)


def freeze_heap() -> None:
    """After a big fold: take what lives now out of every later garbage collection.

    A full collection over a million objects stops a service for a quarter of a second.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection inside, unless it is turned on again before the end."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
