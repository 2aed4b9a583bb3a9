"""Logs as files: `python -m tests.golden.record NAME script SCRIPT | seed N` records a new one.

A log is one record a line, beside it a ``.json`` file that says what it means. What exists is never
written over: these files stand for logs that are out there. (Only the hash of the state is renewed,
with ``pytest --rewrite``, when states have more in them than before.)
"""

import json
import sys
from pathlib import Path
from typing import Any

from allotment.core.ledger.model import Allocation, ClusterState
from allotment.core.logport import Record
from tests.golden.interpreter import Interpreter, fold, state_sha256
from tests.golden.lines import cards_of
from tests.sim.world import World

LOGS = Path(__file__).parent / "logs"


def read_log(path: Path) -> list[Record]:
    """The records of a file; the payload is the stored text, byte for byte."""
    return [
        Record(
            seq=line["seq"],
            subject=line["subject"],
            payload=line["payload"].encode(),
            time_ns=line["time_ns"],
            msg_id=line["msg_id"],
        )
        for line in map(json.loads, path.read_text(encoding="utf-8").splitlines())
    ]


def meaning(state: ClusterState) -> dict[str, Any]:
    """What a log comes to: who holds which cards, who waits, and the hash of everything."""
    return {
        "seq": state.seq,
        "state_sha256": state_sha256(state),
        "pending": sorted(state.pending),
        "held": {
            uid: [held.phase, held.node, *(cards_of((h,)) for h in held.holdings)]
            for uid, held in sorted(_held(state).items())
        },
    }


def _held(state: ClusterState) -> dict[str, Allocation]:
    return {uid: pod.allocation for uid, pod in state.pods.items() if pod.allocation is not None}


def write_log(path: Path, records: list[Record]) -> None:
    """Raises FileExistsError rather than change what is there."""
    lines = [
        json.dumps(
            {
                "seq": record.seq,
                "subject": record.subject,
                "msg_id": record.msg_id,
                "time_ns": record.time_ns,
                "payload": record.payload.decode(),
            },
            ensure_ascii=False,
        )
        for record in records
    ]
    with path.open("x", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    with path.with_suffix(".json").open("x", encoding="utf-8") as file:
        file.write(json.dumps(meaning(fold(records)), indent=1) + "\n")


def main() -> None:
    name, kind, source = sys.argv[1:]
    if kind == "seed":
        world = World(int(source))
        world.run()
        records = world.log.records
    else:
        script = Interpreter()
        for block in Path(source).read_text(encoding="utf-8").split("\n\n")[1:]:
            for command in block.split("\n----")[0].splitlines():
                script.run(command)
        records = script.log.records
    write_log(LOGS / f"{name}.jsonl", records)


if __name__ == "__main__":
    main()
