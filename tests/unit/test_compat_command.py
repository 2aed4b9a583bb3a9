"""`make compat` on small files: what it says of matches, deviations, mismatches, and of files."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.compat.__main__ import compat as command

Element = dict[str, Any]
DEVICES = [{"uuid": "GPU-0", "type": "NVIDIA", "mem": 4096, "core": 25}]


def decoding(name: str = "a", text: str = "GPU-0,NVIDIA,4096,25:", **changes: Any) -> Element:
    """A vector that matches."""
    return {
        "id": name,
        "kind": "decode",
        "function": "decode_container_devices",
        "origin": "upstream-test",
        "input": {"text": text},
        "expected": {"devices": DEVICES},
        **changes,
    }


def trimming() -> Element:
    """A vector that deviates: an index in a list is trimmed here, and dropped by Volcano."""
    return {
        "id": "t",
        "kind": "decode",
        "function": "scenario",
        "input": {
            "strategy": "memory",
            "node": {
                "annotations": {"volcano.sh/gpu-unhealthy-ids": "0, 1"},
                "capacity": {"volcano.sh/gpu-memory": "200", "volcano.sh/gpu-number": "2"},
            },
            "existing": [],
            "steps": [],
        },
        "expected": {
            "registered": True,
            "devices": [{"id": 1, "idle": 100, "memory": 100, "pods": []}],
            "steps": [],
        },
    }


def compat(tmp_path: Path, *elements: Element, code: int = 0, output: str = "text") -> Result:
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps(elements))
    result = CliRunner().invoke(command, [str(path), "-o", output])
    assert result.exit_code == code, result.output
    return result


def test_a_match_is_counted_and_nothing_more_is_said(tmp_path: Path) -> None:
    lines = compat(tmp_path, decoding()).output.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["decode_container_devices", "decode", "1", "1", "0", "0", "0"],
        ["all", "-", "1", "1", "0", "0", "0"],
    ]


def test_a_deviation_is_told_with_its_quirk_and_is_no_failure(tmp_path: Path) -> None:
    text = compat(tmp_path, trimming()).output
    assert "Deliberate deviations: 1" in text
    row = next(line for line in text.splitlines() if line.startswith("t "))
    assert row.split()[:2] == ["t", "Q22"]
    assert "trimmed" in row


def test_a_mismatch_is_told_field_by_field_and_fails(tmp_path: Path) -> None:
    text = compat(tmp_path, decoding(text="GPU-0,NVIDIA,1,25:"), decoding("b"), code=1).output
    assert "Mismatched: 1" in text
    assert '  devices: expected [{"uuid":"GPU-0","type":"NVIDIA","mem":4096,"core":25}]' in text
    assert 'got [{"uuid":"GPU-0","type":"NVIDIA","mem":1,"core":25}]' in text


def test_a_function_that_nobody_knows_fails(tmp_path: Path) -> None:
    text = compat(tmp_path, decoding(function="fold_space"), decoding("b"), code=1).output
    assert "a (fold_space): no runner for function 'fold_space'" in text


def test_an_expectation_that_nobody_knows_fails(tmp_path: Path) -> None:
    text = compat(tmp_path, decoding(expected={"devices": DEVICES, "colour": 1}), code=1).output
    assert "expects colour, of which nothing is known" in text


def test_a_vector_that_breaks_its_runner_leaves_the_others_alone(tmp_path: Path) -> None:
    text = compat(tmp_path, decoding(input={}), decoding("b"), code=1).output
    assert "Not run: 1" in text
    assert "KeyError: 'text' (at requests.py:" in text
    assert "all                       -             2        1" in text


def test_as_json_it_is_one_object_with_all_of_it(tmp_path: Path) -> None:
    elements = (decoding(), trimming(), decoding("m", expected={"devices": []}))
    found = json.loads(compat(tmp_path, *elements, code=1, output="json").output)
    assert (found["vectors"], found["matched"], found["deviates"]) == (3, 1, 1)
    assert (found["mismatched"], found["notRun"]) == (1, 0)
    assert {count["function"]: count["vectors"] for count in found["functions"]} == {
        "decode_container_devices": 2,
        "scenario": 1,
    }
    (deviation,) = found["deviations"]
    assert deviation["id"] == "t"
    assert deviation["reasons"] == [
        {"quirk": "Q22", "why": "lists are trimmed, and ids match exactly"}
    ]
    (mismatch,) = found["mismatches"]
    assert mismatch["differences"] == [
        {"field": "devices", "expected": [], "got": DEVICES, "quirk": ""}
    ]


def test_constants_stand_for_their_texts(tmp_path: Path) -> None:
    constants = {"id": "_constants", "input": {"IDS": "GPU-0,NVIDIA,4096,25:"}, "expected": {}}
    elements = ({"kind": "config", "function": "-", **constants}, decoding(text="$IDS"))
    compat(tmp_path, *elements)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "is no vector file"),
        ("{}", "is no vector file: Expected `array`, got `object`"),
        ("[]", "holds no vectors"),
        ('[{"id": "a"}]', "element 0 (a): Object missing required field `kind`"),
        ('[{"kind": 1}]', "element 0: "),
        (json.dumps([decoding(), decoding()]), "the id 'a' occurs twice"),
        (
            json.dumps([decoding(input={"config": "$NOT_THERE"})]),
            "vector a names $NOT_THERE, which is no constant of the file",
        ),
        (
            json.dumps([{**decoding(), "id": "_constants", "input": {"A": 1}}]),
            "element 0 (_constants): A is not a text",
        ),
    ],
)
def test_what_is_no_vector_file_is_refused_with_its_place(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "vectors.json"
    path.write_text(text)
    result = CliRunner().invoke(command, [str(path)])
    assert result.exit_code == 2
    assert said in result.output


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [str(tmp_path / "none.json")])
    assert result.exit_code == 2
    assert "cannot be read" in result.output
