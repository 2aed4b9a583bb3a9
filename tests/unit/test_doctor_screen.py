"""The screen of `allot doctor` at the widths of terminals, and in a pipe."""

from datetime import UTC, datetime

import pytest

from allotment.core.explain.causes.why import Whys
from allotment.core.explain.doctor import Finding, findings, sources, summary_of
from allotment.core.ledger.model import ClusterState
from allotment_cli.read.doctor import _lines, _summary_lines
from allotment_cli.show.output import wrapped
from tests import build

NOW_MS = 7_201_000
TYPO = build.request(extended=(("volcano.sh/vgpu-numbre", 1),))
AT_80 = """\
Nodes    0 Ready, 1 NotReady
Cards    1 idle, 1 partly in use
Config   scheduler built in; device built in
Waiting  3 pods, the oldest for 2h00m
         PODS  OLDEST  CAUSE   UNTIL
            3   2h00m  Queued  the request or the nodes change

Platform
warning NodeNotReady   node n1
        is not ready, with 1 pod on it: default/pod-runs; they hold shares of 1
        card
        see why: kubectl describe node n1. No new pods are placed on it

Namespace default
warning NotOffered   pods default/pod-a, default/pod-b
        no node offers volcano.sh/vgpu-numbre; did you mean
        volcano.sh/vgpu-number?
        since 1970-01-01 00:00:01 UTC (2h00m)
        fix the resource name and recreate the pods, or add nodes that offer it

Namespace team
warning NotOffered   pod team/pod-c
        no node offers volcano.sh/vgpu-numbre; did you mean
        volcano.sh/vgpu-number?
        since 1970-01-01 00:00:01 UTC (2h00m)
        fix the resource name and recreate the pods, or add nodes that offer it

3 pods cannot start as they are
platform: 1 warning; tenants: 2 warnings"""


def cluster() -> ClusterState:
    runs = build.pod("runs", node="n1", phase="Running", holdings=(build.holding(),))
    waits = [build.pod("a", TYPO), build.pod("b", TYPO), build.pod("c", TYPO, namespace="team")]
    return build.state_of(build.node("n1", ready=False), runs, *waits)


def found() -> list[Finding]:
    return findings(cluster(), NOW_MS)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allotment.adapters.service.moments._local", _utc)


def _utc(ms: int) -> object:
    return datetime.fromtimestamp(ms // 1000, UTC)


def test_the_screen_at_80_columns() -> None:
    state = cluster()
    summary = _summary_lines(summary_of(state, Whys(state)), sources(state), NOW_MS)
    assert "\n".join(wrapped([*summary, *_lines(found(), NOW_MS)], 80)) == AT_80


@pytest.mark.parametrize("width", [80, 100, 140])
def test_nothing_is_wider_than_the_terminal_and_no_word_is_lost(width: int) -> None:
    narrow, wide = (wrapped(_lines(found(), NOW_MS), each) for each in (width, None))
    assert max(map(len, narrow)) <= width
    assert " ".join(narrow).split() == " ".join(wide).split()
