"""Logs of many kinds as files: `python -m tests.recorded` records those that are not there yet.

`NAME.jsonl.gz` is what `allot log -o jsonl | gzip` writes. `meaning.json` says what each log comes
to: who holds which cards, who waits, and the hash of the state. `scenes` plays what is recorded.
Nothing here is recorded anew or removed: what was recorded once stays readable and means the same,
to the byte of a state (`core/ledger/snapshot.py` says why), so new scenes get logs of their own.
"""

import gzip
from collections.abc import Iterable
from pathlib import Path

from allotment.adapters.log import exported
from allotment.core.logport import Record

HERE = Path(__file__).parent
A_FEW = (
    *("failed-binding", "faults-0", "mig-life", "preemption", "two-gangs-race"),
    "voided-by-a-fact",
)
"""Logs of a kind each, for tests that take long."""
MEANING = HERE / "meaning.json"


def names() -> list[str]:
    """The names of the logs that are there."""
    return sorted(path.name.removesuffix(".jsonl.gz") for path in HERE.glob("*.jsonl.gz"))


def read_log(name: str) -> list[Record]:
    lines = gzip.decompress(_file(name).read_bytes()).decode().splitlines()
    return [exported.decode(line, f"{name}:{at}") for at, line in enumerate(lines, 1)]


def write_log(name: str, records: Iterable[Record]) -> None:
    """The same records give the same bytes."""
    text = "".join(exported.encode(record) + "\n" for record in records)
    _file(name).write_bytes(gzip.compress(text.encode(), mtime=0))


def _file(name: str) -> Path:
    return HERE / f"{name}.jsonl.gz"
