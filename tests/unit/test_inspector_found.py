"""Names that were perhaps meant."""

import difflib
from collections.abc import Sequence
from typing import Any

import pytest

from allotment_inspector.pages.parts.found import not_found


def nearest(name: str, known: Sequence[str]) -> list[str]:
    return [near.name for near in not_found("pod", name, known, str).nearest]


def test_a_misspelt_name_is_told_from_others_alike() -> None:
    known = ["team-a/train-llama", "team-b/train-llama", "team-a/eval-bert", "kube/proxy"]
    assert nearest("team-a/tarin-lama", known)[0] == "team-a/train-llama"
    assert nearest("bert", known) == ["team-a/eval-bert"], "a part of a name"
    assert nearest("a", ["b", "a1", "ccccccc"]) == ["a1"]
    assert nearest("", known) == nearest("x" * 5_000, known) == []


def test_of_thousands_few_are_compared_letter_by_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    whole = difflib.get_close_matches

    def counted(word: str, possibilities: Sequence[str], **how: Any) -> list[str]:
        nonlocal compared
        compared += len(possibilities)
        return whole(word, possibilities, **how)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    known = [f"team-{number % 40}/train-llama-{number:05d}" for number in range(10_000)]
    assert nearest("team-7/tarin-llama-04567", known)[0] == "team-7/train-llama-04567"
    assert compared <= 100
