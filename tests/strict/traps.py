"""Traps for what must not decide anything: clocks, dice, ids and addresses, when the core asks."""

import builtins
import datetime
import os
import random
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PURE = ("allotment.core", "allotment_proto", "allotment_board")
"""Packages whose answers follow from their arguments."""
ADDRESSES_ALLOWED = ("allotment.core.config.document", "allotment.core.plugin_arguments")
"""Both keep what they made of an object, and keep the object."""
TRAPPED: tuple[tuple[Any, str], ...] = (
    *((time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter")),
    *((random, name) for name in ("random", "randint", "choice", "shuffle", "getrandbits")),
    *((uuid, name) for name in ("uuid1", "uuid4")),
    *((secrets, name) for name in ("token_bytes", "token_hex", "randbelow")),
    (os, "urandom"),
    (builtins, "id"),
)


class ImpureError(AssertionError):
    """The core asked for something that is not among its arguments."""


def _guarded(real: Callable[..., Any], name: str) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        asker = sys._getframe(1).f_globals.get("__name__", "")
        if asker.startswith(PURE) and not (name == "id" and asker in ADDRESSES_ALLOWED):
            raise ImpureError(f"{asker} calls {name}()")
        return real(*args, **kwargs)

    return guarded


class _Clock(datetime.datetime):
    """`datetime.now` and its like, trapped; everything else as it is."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        asker = sys._getframe(1).f_globals.get("__name__", "")
        if asker.startswith(PURE):
            raise ImpureError(f"{asker} calls datetime.now()")
        return super().now(tz)


@contextmanager
def trapped() -> Iterator[None]:
    """Raise ImpureError wherever the core asks for time, chance or an address."""
    kept = [(where, name, getattr(where, name)) for where, name in TRAPPED]
    clock = datetime.datetime
    try:
        for where, name, real in kept:
            setattr(where, name, _guarded(real, name))
        datetime.datetime = _Clock  # type: ignore[misc]
        yield
    finally:
        for where, name, real in kept:
            setattr(where, name, real)
        datetime.datetime = clock  # type: ignore[misc]
