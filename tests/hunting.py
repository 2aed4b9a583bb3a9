"""Rounds that look for victims also where no queue and no priority has any to spare."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from allotment.core.queues.round.victims import Hunt


@contextmanager
def every_pod_asked() -> Iterator[None]:
    """What a round finds while this is open is what the short way round has to agree with."""
    with patch.object(Hunt, "_may_find", lambda *_: True):
        yield
