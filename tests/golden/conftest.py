"""What golden screens share: the recorded logs, and the time zone."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.recording import busy_cluster
from tests.recording_batch import busy_queues, preempted

RECORDINGS = {"busy": busy_cluster, "queues": busy_queues, "preempted": preempted}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a recorded log, by its name."""
    place, written = tmp_path_factory.mktemp("recorded"), dict[str, Path]()

    def file(name: str) -> Path:
        if name not in written:
            written[name] = RECORDINGS[name]().write(place / f"{name}.jsonl")
        return written[name]

    return file


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Screens show local time."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
