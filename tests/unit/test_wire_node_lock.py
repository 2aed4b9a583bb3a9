"""Node locks of the older protocol."""

import pytest

from allotment_proto.facts import Problem
from allotment_proto.volcano import node_lock

NOW_S = 1_767_225_600
"""2026-01-01T00:00:00Z"""


def test_a_lock_says_when_it_was_taken() -> None:
    assert node_lock.encode_lock(NOW_S) == "2026-01-01T00:00:00Z"
    assert node_lock.encode_lock(0) == "1970-01-01T00:00:00Z"
    assert node_lock.encode_lock(951_827_696) == "2000-02-29T12:34:56Z"


@pytest.mark.parametrize(
    ("text", "taken_s", "pod"),
    [
        ("2026-01-01T00:00:00Z", NOW_S, ""),
        ("2026-01-01T08:00:00+08:00", NOW_S, ""),
        ("2025-12-31T20:30:00-03:30", NOW_S, ""),
        ("2026-01-01T00:00:00.123456Z", NOW_S, ""),
        ("2026-01-01T00:00:00Z,ns,pod-1", NOW_S, "ns/pod-1"),
        ("2000-02-29T12:34:56Z", 951_827_696, ""),
    ],
)
def test_locks_of_others(text: str, taken_s: int, pod: str) -> None:
    assert node_lock.parse_lock(text, "here") == node_lock.Lock(taken_s, pod)


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-01-01", "2026-13-01T00:00:00Z", "2026-02-29T00:00:00Z",
     "2026-01-01T24:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00Z,ns", "1767225600"],
)  # fmt: skip
def test_a_lock_that_cannot_be_read_is_reported(text: str) -> None:
    problem = node_lock.parse_lock(text, "annotation hamivgpu")
    assert isinstance(problem, Problem)
    assert problem.place == "annotation hamivgpu"
    assert "wanted: a time like" in problem.message


@pytest.mark.parametrize(
    ("minutes", "expired"), [(-20, False), (0, False), (5, False), (6, True), (20, True)]
)
def test_locks_expire_after_five_minutes(minutes: int, expired: bool) -> None:
    assert node_lock.Lock(NOW_S).is_expired(NOW_S + minutes * 60) is expired
