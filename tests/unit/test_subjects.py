"""Subjects are built in one place; a name can hold anything."""

import pytest

from allotment_proto import subjects


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("n1", "n1"),
        ("gpu-1.example.com", "gpu-1%2Eexample%2Ecom"),
        ("", "%"),
        ("*", "%2A"),
        (">", "%3E"),
        ("a b", "a%20b"),
        ("%41", "%2541"),
        ("é", "%C3%A9"),
    ],
)
def test_escape(name: str, token: str) -> None:
    assert subjects.escape(name) == token
