"""Lists and lines of a watch with an object in them that no decoder reads: taken apart unread."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.adapters.kube.wire import Unreadable, read_line, read_meta, read_page, shallow
from allotment.core.units import natural

DEEP = b"[" * 50_000 + b"]" * 50_000
TOO_DEEP = b"[" * 2_000 + b"]" * 2_000
"""For examples by the dozen: no decoder reads it, either."""
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(['"[{', "\\", '\\"]']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.dictionaries(st.text(), TREES, max_size=4), max_size=5))
def test_a_page_is_the_same_taken_apart(items: list[Any]) -> None:
    head = b'{"kind":"List","metadata":{"resourceVersion":"7","continue":"c"},"items":['
    raw = [json.dumps(item).encode() for item in items]
    page = read_page(head + b",".join([*raw, b'{"deep":' + TOO_DEEP + b"}"]) + b"]}")
    assert (page.metadata.resourceVersion, page.metadata.more) == ("7", "c")
    assert page.items is not None
    assert [bytes(item) for item in page.items[:-1]] == raw


@given(TREES, st.integers(1, 4))
def test_what_is_deeper_is_left_out(tree: Any, levels: int) -> None:
    def cut(value: Any, left: int) -> Any:
        if isinstance(value, list | dict) and left == 0:
            return None
        if isinstance(value, list):
            return [cut(item, left - 1) for item in value]
        if isinstance(value, dict):
            return {name: cut(item, left - 1) for name, item in value.items()}
        return value

    found = json.loads(shallow(json.dumps(tree).encode(), levels))
    assert found == cut(tree, levels)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"metadata":{},"items":[',
        b'{"metadata":{},"items":"many","x":' + DEEP + b"}",
        b'{"metadata":{},"x":' + DEEP + b"}",
        b'{"metadata":{},"items":{"a":' + DEEP + b"}}",
        b'{"items":[' + DEEP + b"]}",
        b'{"metadata":{},"items":[' + DEEP[:-1] + b"]}",
        b'{"metadata":{},"items":[{"a":NaN]}]}',
        b'{"metadata":{},"items":[{"a":"\xff"}',
        b"[" * 100_000,
        b'"' * 99_999,
    ],
)
def test_what_is_no_list_never_is_an_empty_one(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read_page(body)


def test_a_line_of_a_watch_taken_apart() -> None:
    line = read_line(b'{"object":{"metadata":{"uid":"u"},"x":' + DEEP + b'},"type":"ADDED"}')
    assert line.type == "ADDED"
    assert read_meta(line.object).uid == "u"
    for text in (b'{"type":"ADDED"}', b'{"object":' + DEEP + b"}", b'{"type":7,"object":' + DEEP):
        with pytest.raises(Unreadable):
            read_line(text)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b'{"metadata":{"name":"a","x":' + DEEP + b"}}", "a"),
        (b'{"metadata":{"name":"a","labels":{"l":"\xff"}},"spec":NaN}', "a"),
        (b'{"metadata":{"name":7,"uid":"u"},"spec":' + DEEP + b"}", ""),
        (b'{"metadata":' + DEEP + b"}", ""),
        (b'{"metadata":[' + DEEP, ""),
        (b"\xff", ""),
    ],
)
def test_who_it_is_as_far_as_that_can_be_read(data: bytes, name: str) -> None:
    assert read_meta(data).name == name


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("1" * 5000, None),
        ("²", None),
        ("٣", None),
        ("１", None),
        ("", None),
        ("-1", None),
        (" 1", None),
        ("1_0", None),
    ],
)
def test_whole_numbers_are_ascii_digits_and_few(text: str, number: int | None) -> None:
    assert natural(text) == number
