"""Every screen of the command on a log whose names and messages want to write to the terminal."""

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from allotment_cli import export
from allotment_cli.main import main
from tests.golden.commands import BATCH_COMMANDS, COMMANDS, PREEMPTION_COMMANDS
from tests.recording import Recorder, busy_cluster
from tests.recording_batch import busy_queues, preempted

POISON = "\x1b[31m\x1b[2J\nFORGED\r\x07\x9b\u202e"
LOGS = {
    "busy": (busy_cluster, COMMANDS),
    "queues": (busy_queues, BATCH_COMMANDS),
    "preempted": (preempted, PREEMPTION_COMMANDS),
}
NAMED = ("name", "namespace", "scheduler", "message", "source", "group", "queue", "reason")


def poisoned(recorder: Recorder, path: Path) -> dict[str, str]:
    """Write the log with poison in every name and message; name → poisoned name."""
    documents = [json.loads(record.payload) for record in recorder.records]
    words = {
        part
        for document in documents
        for event in document["events"]
        for key in NAMED
        if isinstance(text := event.get(key), str)
        for part in text.split("/")
        if part
    }
    swaps = {word: word + POISON for word in words}

    def swap(value: Any) -> Any:
        if isinstance(value, str):
            if value in swaps or "/" in value:
                return "/".join(swaps.get(part, part) for part in value.split("/"))
            return value + POISON if " " in value else value
        if isinstance(value, list):
            return [swap(item) for item in value]
        if isinstance(value, dict):
            return {key: value[key] if key == "type" else swap(value[key]) for key in value}
        return value

    lines = []
    for record, document in zip(recorder.records, documents, strict=True):
        document["events"] = swap(document["events"])
        payload = json.dumps(document).encode()
        lines.append(export.encode(msgspec.structs.replace(record, payload=payload)))
    path.write_text("".join(f"{line}\n" for line in lines))
    return swaps


@pytest.mark.parametrize("log", LOGS)
def test_nothing_but_printed_lines_reaches_the_terminal(log: str, tmp_path: Path) -> None:
    made, commands = LOGS[log]
    file = tmp_path / "hostile.jsonl"
    swaps = poisoned(made(), file)
    told = 0
    for command in commands.values():
        words = shlex.split(command)
        at = words.index("show") if "show" in words else len(words)
        for named in (words, ["/".join(swaps.get(x, x) for x in w.split("/")) for w in words]):
            first = 1 if words[0] == "story" else 2
            arguments = [*words[:first], *named[first:at], "--file", str(file), *words[at:]]
            result = CliRunner().invoke(main, arguments, color=True)
            assert result.exit_code in range(4), (arguments, result.exception)
            assert not isinstance(result.exception, AssertionError | TypeError | ValueError)
            for line in result.output.split("\n"):
                assert line.isprintable(), (arguments, line)
                assert not line.startswith("FORGED"), arguments
            told += "FORGED" in result.output
            if "json" in words and result.exit_code == 0 and result.stdout.strip():
                documents = [result.stdout]
                if words[0] == "log":
                    documents = result.stdout.splitlines()
                assert all(json.loads(document) is not None for document in documents)
    assert told > len(commands) / 2
