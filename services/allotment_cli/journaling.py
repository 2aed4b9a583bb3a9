"""The journal of a log, as a command finds it: kept from an earlier one, and brought up to date.

A writer goes on from a fold, so a snapshot of the state lies where the kept journal ends. Without
the one or the other, or if anything about them is in doubt, the log is folded from its beginning.
"""

from contextlib import aclosing

from allotment.adapters.log.snapshots import digests_of
from allotment.adapters.service.heap import uncollected
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record, digest_of
from allotment.core.replay.journal import Journal, JournalError, Segment, Writer
from allotment_cli.errors import CliError
from allotment_cli.folding import KEEP_AFTER_EVENTS, reading, take
from allotment_cli.output import note
from allotment_cli.source import JournalCache, Source


async def journal_of(source: Source) -> Journal:
    """The journal up to the newest record. Raises `CliError` for a log that no journal can hold."""
    with uncollected():
        last_seq = await source.last_seq()
        found, state = Journal(), ClusterState()
        if source.journal is not None:
            found, state = await _restored(source, source.journal, last_seq)
        try:
            return await _brought_up_to(last_seq, source, found, state)
        except JournalError as error:
            raise CliError(
                f"the usage in this log cannot be computed: {error}",
                "see the record with: allot log",
            ) from error


async def _brought_up_to(
    last_seq: int, source: Source, found: Journal, state: ClusterState
) -> Journal:
    writer = Writer(state, found.names, found.chain)
    events = 0
    last: Record | None = None
    async with aclosing(reading(source, state.seq + 1, last_seq)) as batches:
        async for batch in batches:
            for record in batch:
                last = record
                envelope = take(state, record)
                decoded = () if envelope is None else envelope.events
                writer.take(record.seq, record.time_ns // 1_000_000, record.payload, decoded)
                events += len(decoded)
    if writer.last_seq > found.last_seq:
        segment = writer.cut()
        found.add(segment)
        if events >= KEEP_AFTER_EVENTS and source.journal is not None and last is not None:
            await _keep(source.journal, segment, state, digest_of(last))
    return found


async def _restored(
    source: Source, cache: JournalCache, last_seq: int
) -> tuple[Journal, ClusterState]:
    """What is kept, as far as a snapshot and the journal end at one sequence."""
    nothing = Journal(), ClusterState()
    image = await cache.snapshots.load(last_seq, digests_of(source))
    if image is None:
        return nothing
    try:
        state = snapshot.decode(image[1])
    except snapshot.SnapshotError as error:
        note(f"the cached journal is from another release and is not used: {error}")
        return nothing
    found = await cache.segments.load(state.seq)
    for ignored in cache.segments.ignored:
        note(f"the cached journal is not used: {ignored.path}: {ignored.message}")
    return (found, state) if found.last_seq == state.seq else nothing


async def _keep(cache: JournalCache, segment: Segment, state: ClusterState, record: str) -> None:
    """For the next command. A cache: that it cannot be written is worth a word, no more."""
    try:
        await cache.segments.save(segment)
        await cache.snapshots.save(state.seq, snapshot.encode(state), record)
    except (OSError, OverflowError, JournalError) as error:
        note(f"the cached journal cannot be written; the next command reads the log again: {error}")
