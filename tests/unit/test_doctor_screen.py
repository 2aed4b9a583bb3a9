"""The screen of `allot doctor` at the widths of terminals, and in a pipe."""

import pytest

from allotment.core.explain.doctor import Finding, findings
from allotment_cli.doctor import _lines
from tests import build

NOW_MS = 7_201_000
TYPO = build.request(extended=(("volcano.sh/vgpu-numbre", 1),))
AT_80 = """\
warning NodeNotReady   node n1
        is not ready, with 1 pod on it: default/pod-runs; they hold parts of 1
        card
        see why: kubectl describe node n1; it takes nothing new until then
warning NotOffered   pods default/pod-a, default/pod-b
        no node offers volcano.sh/vgpu-numbre; did you mean
        volcano.sh/vgpu-number?
        since 1970-01-01 00:00:01 UTC (2h00m)
        do what the message says, or make the pods again with what nodes offer
2 pods cannot start as they are
0 errors, 2 warnings"""


def found() -> list[Finding]:
    runs = build.pod("runs", node="n1", phase="Running", holdings=(build.holding(),))
    node = build.node("n1", ready=False)
    return findings(build.state_of(node, runs, build.pod("a", TYPO), build.pod("b", TYPO)), NOW_MS)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allotment.adapters.service.moments._local", _utc)


def _utc(ms: int) -> object:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms // 1000, UTC)


def test_the_screen_at_80_columns() -> None:
    assert "\n".join(_lines((), found(), (), NOW_MS, 80)) == AT_80


@pytest.mark.parametrize("width", [80, 100, 140])
def test_nothing_is_wider_than_the_terminal_and_no_word_is_lost(width: int) -> None:
    narrow, wide = (_lines((), found(), (), NOW_MS, each) for each in (width, None))
    assert max(map(len, narrow)) <= width
    assert " ".join(narrow).split() == " ".join(wide).split()
