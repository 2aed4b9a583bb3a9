"""The garbage collector and large folds: a fold makes no cycles and keeps nearly all it makes.

Looking through it again and again while it grows would take as long as making it.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection inside, unless somebody turns it on again before the end."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
