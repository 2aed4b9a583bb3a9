"""Every screen of the command on a log whose names and messages want to write to the terminal."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from allotment.adapters.log import exported
from allotment_cli.main import main
from tests.golden.commands import BATCH_COMMANDS, COMMANDS, PREEMPTION_COMMANDS
from tests.hostile import poisoned
from tests.recording import busy_cluster
from tests.recording_batch import busy_queues, preempted

POISON = "\x1b[31m\x1b[2J\nFORGED\r\x07\x9b\u202e"
LOGS = {
    "busy": (busy_cluster, COMMANDS),
    "queues": (busy_queues, BATCH_COMMANDS),
    "preempted": (preempted, PREEMPTION_COMMANDS),
}


@pytest.mark.parametrize("log", LOGS)
def test_nothing_but_printed_lines_reaches_the_terminal(log: str, tmp_path: Path) -> None:
    made, commands = LOGS[log]
    file = tmp_path / "hostile.jsonl"
    records, swaps = poisoned(made(), POISON)
    file.write_text("".join(f"{exported.encode(record)}\n" for record in records))
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
