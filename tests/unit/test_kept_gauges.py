"""Gauges with very many rows: written as prometheus_client writes them, in slices, and where
something changed only."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import pytest
from prometheus_client.parser import text_string_to_metric_families

from allotment.adapters.service.http import Readiness, serve_http
from allotment.adapters.telemetry.kept_gauges import SLICE_S, keep_up, lines_of
from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.core.ledger import model
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.metrics.cards import Gauge, card_gauges
from allotment.core.metrics.kept_cards import KeptCards
from allotment_proto.events import NodeGone, PodGone
from tests.build import holding, node, pod, policy, state_of

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
)
ACCEPTS = (
    "",
    OPEN_METRICS,
    PROMETHEUS_3,
    "text/plain;version=1.0.0;escaping=dots",
    f"{OPEN_METRICS};escaping=dots",
    f"{OPEN_METRICS}; escaping=values",
    'text/plain;version=1.0.0;escaping="allow-utf-8"',
)
ODD = ("", "a b", 'a"b', "a\\", "\\n", "a\nb", "ü€𝄞", "a=b,c}", "#")
VALUES = (0, 1, -1, 99, 10**6, 10**7, 123_456_789, 10**17, -(10**9))


def page(gauges: Sequence[Gauge], accept: str) -> bytes:
    """What prometheus_client makes of them."""
    metrics = ServiceMetrics("scorer")
    metrics.expose_gauges(lambda: gauges)
    return metrics.encode(accept)[0]


def rows(body: bytes, start: str) -> list[bytes]:
    return [line for line in body.split(b"\n") if start.encode() in line]


@pytest.mark.parametrize("accept", ["", OPEN_METRICS])
@pytest.mark.parametrize("divisor", [1, 1000, 3])
def test_rows_are_written_as_the_library_writes_them(accept: str, divisor: int) -> None:
    odd: dict[tuple[str, ...], int] = {
        (one, other, str(value)): value
        for one, other in zip(ODD, ODD[::-1], strict=True)
        for value in VALUES
    }
    named = Gauge("allot_odd_bytes", "odd", ("zone", "Card", "a_1"), odd, divisor)
    bare = Gauge("allot_bare", "bare", (), {(): 7})
    for gauge in (named, bare):
        lines = lines_of(gauge).removesuffix(b"\n").split(b"\n")
        assert lines == [
            line for line in rows(page([gauge], accept), gauge.name) if not line.startswith(b"#")
        ]
    assert lines_of(named._replace(rows={})) == b""


def cluster() -> ClusterState:
    return state_of(policy(), *(node(f"n{number}") for number in range(4)))


async def body_of(metrics: ServiceMetrics, accept: str) -> bytes:
    return b"".join((await metrics.page(accept))[0])


@pytest.mark.parametrize("version", ["abc", "1.x", "", "-1"])
def test_a_version_that_is_none_is_no_error(version: str) -> None:
    body = anyio.run(body_of, ServiceMetrics("scorer"), f"{OPEN_METRICS};version={version}")
    assert b"# TYPE" in body


@pytest.mark.parametrize("accept", ACCEPTS)
def test_the_page_is_the_one_that_is_made_at_once(accept: str) -> None:
    state = cluster()
    apply(state, pod("a", node="n1", holdings=(holding("GPU-0"),)), 9)
    metrics = ServiceMetrics("scorer")
    metrics.expose("allot_before", "x", lambda: 1)
    metrics.expose_kept(KeptCards(lambda: state, lines_of))
    body = anyio.run(body_of, metrics, accept)
    wanted = page(card_gauges(state), accept.replace("dots", "underscores"))
    assert rows(body, "device") == rows(wanted, "device")
    assert rows(body, "allot_largest") == rows(wanted, "allot_largest")
    assert body.endswith(b"# EOF\n") == ("openmetrics" in accept)
    assert body.count(b"# EOF") <= 1
    assert rows(body, "allot_before 1")


def test_only_what_changed_is_written_again() -> None:
    state = cluster()
    kept = KeptCards(lambda: state, lines_of)

    def looked_at() -> int:
        before = kept.looked_at
        anyio.run(keep_up, kept)
        assert [b"".join(texts) for _, texts in kept.pages()] == [
            lines_of(gauge) for gauge in card_gauges(state)
        ]
        return kept.looked_at - before

    assert looked_at() == 4
    assert looked_at() == 0
    apply(state, pod("a", node="n1", holdings=(holding("GPU-0"),)), 9)
    assert looked_at() == 1
    apply(state, PodGone(uid="a", namespace="default", name="pod-a", rv=9), 10)
    apply(state, NodeGone(name="n2", uid="uid-n2", rv=9), 11)
    assert looked_at() == 1
    assert kept._written.keys() == {"n0", "n1", "n3"}


def test_another_state_leaves_nothing_behind() -> None:
    states = [cluster(), state_of(policy(), node("n1"), node("other"))]
    kept = KeptCards(lambda: states[0], lines_of)
    anyio.run(keep_up, kept)
    del states[0]
    anyio.run(keep_up, kept)
    assert kept._written.keys() == {"n1", "other"}


def test_who_was_away_for_too_long_writes_all_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "CHANGES_MAX", 8)
    state = cluster()
    kept = KeptCards(lambda: state, lines_of)
    anyio.run(keep_up, kept)
    for number in range(20):  # on two nodes, the first of them so long ago that it is forgotten
        on = "n1" if number < 2 else "n2"
        apply(state, pod(f"p{number}", node=on, holdings=(holding("GPU-0", 1, 1),)), 9 + number)
    anyio.run(keep_up, kept)
    assert [b"".join(texts) for _, texts in kept.pages()] == [
        lines_of(gauge) for gauge in card_gauges(state)
    ]


def test_two_who_scrape_at_once_both_get_all_of_it() -> None:
    state = cluster()
    kept = KeptCards(lambda: state, lines_of)
    first = kept.changed()
    for name in first[:3]:
        kept.look_at(name)
    apply(state, policy(namespace_in_metrics=True), 9)  # all is to be written again
    kept.changed()
    for name in first[3:]:
        kept.look_at(name)
    texts = {gauge.name: b"".join(texts) for gauge, texts in kept.pages()}
    assert texts["volcano_vgpu_device_memory_limit"].count(b"\n") == 8


class Slow:
    """Gauges of so many parts, each of which takes as long as a clock says."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.looked: list[str] = []
        self.now_s = 0.0

    def known(self) -> Sequence[Gauge]:
        return [Gauge("allot_slow", "slow", ("part",), {})]

    def changed(self) -> Sequence[str]:
        return [str(number) for number in range(self.parts)]

    def look_at(self, name: str) -> None:
        self.looked.append(name)
        self.now_s += 0.4 * SLICE_S

    def pages(self) -> Iterator[tuple[Gauge, Sequence[bytes]]]:
        yield self.known()[0], [f'allot_slow{{part="{name}"}} 1\n'.encode() for name in self.looked]


def test_others_have_their_turn_while_much_is_written() -> None:
    slow, seen = Slow(30), list[int]()

    async def other() -> None:
        while len(slow.looked) < slow.parts:
            seen.append(len(slow.looked))
            await anyio.lowlevel.checkpoint()

    async def both() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            await keep_up(slow, lambda: slow.now_s)

    anyio.run(both)
    assert slow.looked == list(slow.changed())
    steps = [after - before for before, after in pairwise(seen)]
    assert max(steps) <= 3  # the first that ends after the slice is the last of it
    assert len(set(seen)) == 9


class Broken(Slow):
    def look_at(self, name: str) -> None:
        if self.parts:
            raise ZeroDivisionError("odd card")


@pytest.mark.parametrize("accept", ["", OPEN_METRICS])
def test_what_cannot_be_written_is_left_out_and_said_once(accept: str) -> None:
    metrics, failed = ServiceMetrics("scorer"), list[str]()
    metrics.on_failed = lambda name, error: failed.append(f"{name}: {error}")
    broken = Broken(1)
    metrics.expose_kept(broken)
    metrics.expose("allot_right", "x", lambda: 7)
    for _ in range(3):
        body = anyio.run(body_of, metrics, accept)
        assert b"allot_slow{" not in body
        assert b"allot_right 7" in body
    assert b'allot_metrics_failed_total{metric="allot_slow"} 3.0' in body
    assert failed == ["allot_slow: odd card"]
    broken.parts = 0
    anyio.run(body_of, metrics, accept)
    broken.parts = 1
    anyio.run(body_of, metrics, accept)
    assert len(failed) == 2


def test_nobody_else_may_have_the_names() -> None:
    metrics = ServiceMetrics("scorer")
    metrics.expose_kept(KeptCards(ClusterState, lines_of))
    with pytest.raises(ValueError, match="volcano_vgpu_device_memory_limit"):
        metrics.expose("volcano_vgpu_device_memory_limit", "again", lambda: 0)


def test_a_service_answers_with_all_of_it() -> None:
    state = state_of(policy(), *(node(f"n{number}") for number in range(700)))
    metrics = ServiceMetrics("scorer")
    metrics.expose_kept(KeptCards(lambda: state, lines_of))
    found: dict[str, Any] = {}

    async def scrape() -> None:
        async with (
            serve_http("127.0.0.1", 0, "scorer", Readiness(), metrics) as address,
            aiohttp.ClientSession() as session,
            session.get(f"http://{address}/metrics") as answer,
        ):
            text = await answer.text()
        found.update({family.name: family for family in text_string_to_metric_families(text)})

    anyio.run(scrape)
    assert len(found["volcano_vgpu_device_memory_limit"].samples) == 1400


def test_who_asks_for_the_head_gets_no_body_and_who_is_gone_no_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = state_of(policy(), *(node(f"n{number}") for number in range(300)))
    metrics, answers = ServiceMetrics("scorer"), list[bytes]()
    metrics.expose_kept(KeptCards(lambda: state, lines_of))

    async def ask() -> None:
        async with serve_http("127.0.0.1", 0, "scorer", Readiness(), metrics) as address:
            host, _, port = address.rpartition(":")
            for request in (b"GET /metrics", b"HEAD /metrics"):
                async with await anyio.connect_tcp(host, int(port)) as stream:
                    await stream.send(request + b" HTTP/1.1\r\nHost: x\r\n\r\n")
                    if request.startswith(b"GET"):
                        continue  # gone while it is written down
                    await stream.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                    answer = b""
                    while not answer.endswith(b"ok\n"):
                        answer += await stream.receive()
                    answers.append(answer)

    with anyio.from_thread.start_blocking_portal() as portal:
        portal.call(ask)
    (answer,) = answers
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert b"# HELP" not in answer
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.anyio
async def test_pages_that_are_asked_for_at_once_are_made_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A crowd of scrapers held up the lease: the loop's other tasks have a turn between two."""
    metrics = ServiceMetrics("scorer")
    made = since_turn = most = prepared = 0

    def encode(accept: str) -> tuple[bytes, str]:
        nonlocal made, since_turn, most
        made += 1
        since_turn += 1
        most = max(most, since_turn)
        return b"", ""

    async def prepare() -> None:
        nonlocal prepared
        prepared += 1
        await anyio.sleep(0.01)

    async def turns() -> None:
        nonlocal since_turn
        while made < 50:
            since_turn = 0
            await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(metrics, "encode", encode)
    metrics.before_page["allot_x"] = prepare
    async with anyio.create_task_group() as group:
        group.start_soon(turns)
        for _ in range(50):
            group.start_soon(metrics.page, "")
    assert (made, prepared) == (50, 1)
    assert most <= 2
