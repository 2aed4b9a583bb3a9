"""Subjects are built and parsed in one place; a name can hold anything."""

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
    assert subjects.unescape(token) == name


@pytest.mark.parametrize("token", ["%4", "%zz", "a.b", "%41", "%2e", "%+1", "é", "%C3", "%%", "a%"])
def test_tokens_that_nobody_wrote(token: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - a decoding error has its own words
        subjects.unescape(token)


@pytest.mark.parametrize(
    ("subject", "about"),
    [
        (subjects.node("a.b"), ("node", "a.b")),
        (subjects.pod("u-1"), ("pod", "u-1")),
        (subjects.CONFIG, ("config", "")),
        (subjects.DECISION, ("decision", "")),
        (subjects.OUTCOME, ("outcome", "")),
        (subjects.FACTS, ("facts", "")),
    ],
)
def test_describe(subject: str, about: tuple[str, str]) -> None:
    assert subjects.describe(subject) == about
    assert subject.startswith(subjects.LOG_ALL.removesuffix(">"))


@pytest.mark.parametrize("subject", ["", "allot.log", "allot.log.podx", subjects.FEASIBLE])
def test_what_is_no_subject_of_the_log(subject: str) -> None:
    with pytest.raises(ValueError, match="not a subject of the log"):
        subjects.describe(subject)
