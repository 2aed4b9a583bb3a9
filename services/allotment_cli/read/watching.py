"""`-w` of explanations: the screen again each time that what it says has changed.

Two explanations of one moment's clock are compared, so that time alone changes nothing; what would
make it fit is left out of that, for it may take long on many nodes.
"""

from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

import msgspec

from allotment.answers.folding import Folded, Observer, take
from allotment.answers.source import Source
from allotment.core.errors import AllotError
from allotment_cli.show.output import DOCUMENTS, emit

LEAVE_OUT_WATCH = "leave out --watch, or -o"
_OF_THE_MOMENT = frozenset(("asOf",))


class Look(Protocol):
    """Explains a state; without `advised` it says nothing of changes that would help."""

    async def __call__(self, folded: Folded, *, advised: bool) -> Any: ...


def check_watch(at: str | None, file: Path | None, output: str, remedy: str) -> None:
    """Whether `--watch` goes with the other options. Raises `AllotError`."""
    if at is not None or file is not None:
        raise AllotError(
            "--watch follows a live log, which --at and --file do not",
            "leave out one of them",
        )
    if output in DOCUMENTS:
        raise AllotError(f"-o {output} is one document and cannot be followed", remedy)


async def watch(
    source: Source,
    folded: Folded,
    look: Look,
    show: Callable[[Any], None],
    *,
    observer: Observer | None = None,
) -> None:
    """Show what `look` finds after the records that are new, if it is something else than before.
    `observer` is called with each record, as in `fold_at`.
    """
    state, clock_ms = folded.state, folded.time_ms
    known = _facts(await look(folded, advised=False))
    async with aclosing(source.follow(folded.seq)) as batches:
        async for batch in batches:
            for record in batch:
                envelope = take(state, record)
                if envelope is not None and observer is not None:
                    observer(record, envelope, state)
            now = Folded(state, state.seq, clock_ms, ())
            facts = _facts(await look(now, advised=False))
            if facts != known:
                known = facts
                emit(["", "---"])
                show(await look(now._replace(time_ms=source.now_ms()), advised=True))


def _facts(found: object) -> object:
    return _bare(msgspec.to_builtins(found))


def _bare(value: Any) -> Any:
    """Without what says of which moment it is."""
    if isinstance(value, dict):
        return {k: _bare(v) for k, v in value.items() if k not in _OF_THE_MOMENT}
    if isinstance(value, list | tuple):
        return [_bare(each) for each in value]
    return value
