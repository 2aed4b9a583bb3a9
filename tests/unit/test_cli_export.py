"""An exported log is the log: byte for byte there and back, and broken files are named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.adapters.log import exported
from allotment.core.errors import AllotError
from allotment.core.logport import Record
from tests.recording import busy_cluster

DEEP = '{"a":' + "[" * 50_000 + "]" * 50_000 + "}"
"""Valid JSON, nested more deeply than any reader of ours follows."""


@given(
    payload=st.binary(max_size=60)
    | st.sampled_from([b'{"v":1}', b'{\n"v":1}', b"[1]", b"", b" {}", b'{"a":\r1}', b"{"]),
    msg_id=st.text(max_size=8),
    seq=st.integers(1, 1 << 50),
)
def test_records_survive_whatever_they_hold(payload: bytes, msg_id: str, seq: int) -> None:
    record = Record(seq, "allot.log.pod.x", payload, 12, msg_id)
    line = exported.encode(record)
    assert "\n" not in line
    assert exported.decode(line, "here") == record


def test_a_log_survives(tmp_path: Path) -> None:
    log = busy_cluster()
    assert list(exported.read_file(log.write(tmp_path / "log.jsonl"))) == log.records


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "{}",
        '{"seq":1,"subject":"x"}',
        '{"seq":1,"subject":"x","base64":"?"}',
        DEEP,
        '{"seq":1,"subject":"x","record":' + DEEP + "}",
    ],
    ids=lambda text: text[:40],
)
def test_a_broken_line_is_named(tmp_path: Path, text: str) -> None:
    path = busy_cluster().write(tmp_path / "log.jsonl")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], text, *lines[2:]]))
    with pytest.raises(AllotError, match=r"log\.jsonl:2 is not a record"):
        list(exported.read_file(path))


def test_a_gap_is_named(tmp_path: Path) -> None:
    path = busy_cluster().write(tmp_path / "log.jsonl")
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:3] + lines[4:]))
    with pytest.raises(AllotError, match=r"log\.jsonl:4 has sequence 5, but 4 was expected"):
        list(exported.read_file(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AllotError, match=r"none\.jsonl cannot be read"):
        list(exported.read_file(tmp_path / "none.jsonl"))
