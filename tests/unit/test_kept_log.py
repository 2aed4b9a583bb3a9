"""What was read of a log is kept: read once, trusted only where it is what was written, and a
question about a pod costs the same however old the log is.
"""

import os
from functools import cache
from pathlib import Path

import anyio
import pytest

from allotment.adapters.log import kept
from allotment.adapters.service.moments import AtSequence
from allotment.answers import folding, pods, usage
from allotment.answers.folding import fold
from allotment.core.explain.history.concerned import POD
from allotment.core.explain.rows.life import Life
from allotment.core.ledger import snapshot
from allotment.core.logport import Record
from allotment.core.replay.usage import NAMES
from tests.kept import KeptSource
from tests.recording import Recorder, vgpu

APART = 60
PODS = 60


@pytest.fixture(autouse=True)
def small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "STRETCH_RECORDS", 50)
    monkeypatch.setattr(kept, "FRAME_RECORDS", 10)
    monkeypatch.setattr(kept, "WORTH_RECORDS", 5)
    monkeypatch.setattr(folding, "APART_EVENTS", APART)


@cache
def log_of(pods: int, began_ms: int = 0) -> tuple[Record, ...]:
    """A log in which one pod after the other comes, is placed, bound, and goes."""
    log = Recorder()
    log.now_ms += began_ms
    log.node("gpu-01", cards=2)
    for number in range(pods):
        uid = log.pod(f"pod-{number}", vgpu())
        log.decide(uid)
        log.bind(uid)
        log.gone(uid)
    return tuple(log.records)


async def asked(source: KeptSource, name: str, seq: int) -> Life:
    """The life of a pod up to a record, as one command answers it."""
    found = await pods.life(source, "default", name, AtSequence(seq))
    await source.kept.close()
    return found


async def filled(records: tuple[Record, ...], directory: Path) -> None:
    """What a first command leaves in the cache."""
    await asked(KeptSource(records, directory), "pod-0", len(records))


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.anyio
async def test_the_log_is_asked_for_each_record_once(tmp_path: Path) -> None:
    records = log_of(PODS)
    first = KeptSource(records[:150], tmp_path)
    await asked(first, "pod-5", 150)
    assert first.log.read_records == 150
    second = KeptSource(records, tmp_path)
    assert await asked(second, "pod-5", len(records)) == await asked(
        KeptSource(records, None), "pod-5", len(records)
    )
    assert second.log.read_records <= len(records) - 150 + 1  # one that the cache is held against
    read = [record async for batch in second.kept.read(1, len(records)) for record in batch]
    assert read == list(records)


@pytest.mark.anyio
async def test_few_new_records_are_not_worth_writing(tmp_path: Path) -> None:
    records = log_of(PODS)
    await asked(KeptSource(records[:3], tmp_path), "pod-0", 3)
    assert names_in(tmp_path) == []


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["header", "middle", "end", "cut"])
async def test_a_file_that_is_not_what_was_written_is_made_again(
    tmp_path: Path, place: str
) -> None:
    records = log_of(PODS)
    plain = await asked(KeptSource(records, None), "pod-20", len(records))
    await filled(records, tmp_path)
    names = names_in(tmp_path)
    assert {name.partition("-")[0] for name in names} == {"outline", "records", "snapshot"}
    for name in names:
        path = tmp_path / name
        if not path.exists():  # dropped with one before it
            continue
        content = bytearray(path.read_bytes())
        at = {"header": 5, "middle": len(content) // 2, "end": len(content) - 1}.get(place, 0)
        content[at] ^= 4
        path.write_bytes(content[: len(content) // 3] if place == "cut" else content)
        source = KeptSource(records, tmp_path)
        assert await asked(source, "pod-20", len(records)) == plain
        assert [r async for b in source.kept.read(1, len(records)) for r in b] == list(records)
        await source.kept.close()
    again = KeptSource(records, tmp_path)
    assert await asked(again, "pod-20", len(records)) == plain
    assert again.log.read_records <= 1 + kept.WORTH_RECORDS


@pytest.mark.anyio
async def test_a_log_that_was_cut_and_grew_again_keeps_what_was_before_the_cut(
    tmp_path: Path,
) -> None:
    await filled(log_of(PODS), tmp_path)
    cut = 120
    grown = log_of(PODS)[:cut] + log_of(PODS, 7)[cut:]
    source = KeptSource(grown, tmp_path)
    seq = len(grown)
    assert await asked(source, "pod-55", seq) == await asked(KeptSource(grown, None), "pod-55", seq)
    again = len(grown) - cut
    assert again <= source.log.read_records <= again + kept.STRETCH_RECORDS + 30
    assert cut > kept.STRETCH_RECORDS
    folded, plain = [await fold(each, None) for each in (source, KeptSource(grown, None))]
    assert snapshot.encode(folded.state) == snapshot.encode(plain.state)


@pytest.mark.anyio
async def test_a_cache_of_another_log_is_not_used(tmp_path: Path) -> None:
    await filled(log_of(PODS), tmp_path)
    other = log_of(PODS, 7)
    source = KeptSource(other, tmp_path)
    assert await asked(source, "pod-9", len(other)) == await asked(
        KeptSource(other, None), "pod-9", len(other)
    )
    assert source.log.read_records >= len(other)


@pytest.mark.anyio
async def test_a_question_costs_the_same_however_old_the_log_is(tmp_path: Path) -> None:
    folded = []
    for times in (1, 4):
        records, directory = log_of(PODS * times), tmp_path / str(times)
        await filled(records, directory)
        for name in ("pod-1", f"pod-{PODS // 2}", f"pod-{PODS * times - 2}"):
            source = KeptSource(records, directory)
            await asked(source, name, len(records))
            folded.append(source.folded)
            assert source.log.read_records <= 1 + kept.WORTH_RECORDS
    assert max(folded) <= 3 * APART  # for the pod and for the end, each less than one distance


@pytest.mark.anyio
async def test_files_that_nothing_uses_are_removed(tmp_path: Path) -> None:
    records = log_of(PODS)
    await filled(records, tmp_path)
    names = names_in(tmp_path)
    old, new = tmp_path / "records-of-another-format", tmp_path / "outline-that-is-being-written"
    for path in (old, new):
        path.write_bytes(b"")
    os.utime(old, (0, 0))
    await filled(records, tmp_path)
    assert names_in(tmp_path) == sorted([*names, new.name])


@pytest.mark.anyio
async def test_two_commands_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    records = log_of(PODS)
    plain = await asked(KeptSource(records, None), "pod-7", len(records))
    found = []

    async def ask(first: int) -> None:
        source = KeptSource(records[:first], tmp_path)
        await asked(source, "pod-7", first)
        source = KeptSource(records, tmp_path)
        found.append(await asked(source, "pod-7", len(records)))
        assert (await source.kept.about([(POD, plain.subject.uid)], len(records))).popitem()[1]

    async with anyio.create_task_group() as group:
        for first in (60, 90, 130, len(records)):
            group.start_soon(ask, first)
    assert found == [plain] * 4


@pytest.mark.anyio
@pytest.mark.parametrize("by", [*NAMES, "label=app"])
async def test_usage_goes_on_from_what_was_added_up_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(usage, "KEEP_AFTER_RECORDS", 40)
    records = log_of(PODS)
    for last in (90, 91, 200, 150, len(records)):  # the clock may go back: then from the beginning
        source = KeptSource(records[:last], tmp_path)
        assert await usage.measure(source, by=by) == await usage.measure(
            KeptSource(records[:last], None), by=by
        )
        await source.kept.close()
    assert source.folded < PODS * 3
    late = await usage.measure(KeptSource(records, tmp_path), AtSequence(30), AtSequence(222), by)
    assert late == await usage.measure(
        KeptSource(records, None), AtSequence(30), AtSequence(222), by
    )
