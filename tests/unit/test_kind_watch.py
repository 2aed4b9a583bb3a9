"""What a service knows of one kind of object that it follows: listed, or why not."""

from collections.abc import Mapping
from typing import cast
from unittest.mock import MagicMock

import msgspec
import pytest

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.kind_watch import KindWatch
from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment.adapters.kube.watch_events import Backoff, Synced, WatchEvent
from allotment.adapters.telemetry.refusals import Refusals
from tests.waiting import patience

FORBIDDEN = Refused(403, "Forbidden", "may not list things")
EMPTY = Ok(200, b'{"metadata": {"resourceVersion": "7"}, "items": []}')


class Thing(msgspec.Struct):
    """An object of which nothing is read."""


class _Done(Exception):
    """Leaves the watch once the script is played."""


class _Scripted:
    """Answers lists from a script; a watch is never opened, as there is nothing to go on from."""

    def __init__(self, answers: list[KubeResult]) -> None:
        self.silent: dict[str, str] = {}
        self._answers = answers

    async def list(self, path: str, params: Mapping[str, str]) -> KubeResult:
        if not self._answers:
            raise _Done
        return self._answers.pop(0)

    def watch(self, path: str, params: Mapping[str, str], idle_s: float) -> "_Expired":
        return _Expired()


class _Expired:
    async def __aenter__(self) -> Refused:
        return Refused(410, "Expired", "too old")

    async def __aexit__(self, *_: object) -> None: ...


async def _ignore(event: WatchEvent[Thing]) -> None: ...


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "delay_s", lambda *_: 0.0)


async def play(watch: KindWatch[Thing], *answers: KubeResult) -> None:
    with patience(), pytest.raises(_Done):
        await watch.run(cast(KubeClient, _Scripted([*answers])))


@pytest.mark.anyio
async def test_the_same_failure_is_warned_of_once_until_a_list_succeeds() -> None:
    problems, warnings = list[str](), list[str]()
    watch = KindWatch(
        "/things",
        Thing,
        _ignore,
        Refusals(MagicMock()),
        on_problem=problems.append,
        warn=warnings.append,
    )
    await play(watch, FORBIDDEN, FORBIDDEN, EMPTY, FORBIDDEN, FORBIDDEN)
    text = "/things: list: 403 Forbidden: may not list things"
    assert problems == [text] * 4
    assert warnings == [text] * 2


@pytest.mark.anyio
async def test_why_a_kind_was_never_listed_is_known_until_it_is() -> None:
    seen: list[tuple[bool, str]] = []
    watch: KindWatch[Thing]

    async def on_event(event: WatchEvent[Thing]) -> None:
        assert isinstance(event, Synced)
        seen.append((watch.is_listed, watch.failure))

    def on_problem(text: str) -> None:
        seen.append((watch.is_listed, watch.failure))

    watch = KindWatch("/things", Thing, on_event, Refusals(MagicMock()), on_problem=on_problem)
    assert (watch.is_listed, watch.failure) == (False, "")
    await play(watch, FORBIDDEN, EMPTY, FORBIDDEN)
    failure = "/things: list: 403 Forbidden: may not list things"
    assert seen == [(False, failure), (True, ""), (True, "")]


@pytest.mark.anyio
async def test_a_kind_that_the_server_does_not_know_counts_as_listed() -> None:
    absent = Refused(404, "NotFound", "no such resource")
    watch = KindWatch(
        "/things", Thing, _ignore, Refusals(MagicMock()), absent_ok=True, absent_retry_s=0.0
    )
    await play(watch, absent)
    assert (watch.is_listed, watch.failure) == (True, "")
