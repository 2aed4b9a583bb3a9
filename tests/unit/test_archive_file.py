"""The file of a segment: what goes in comes out, and every kind of damage is named."""

import io
import json
import random
import subprocess
from pathlib import Path

import pytest
import zstandard

from allotment.adapters.archive import file as archive_file
from allotment.adapters.archive.file import SegmentBroken, SegmentFile, Writer
from allotment.adapters.archive.index import SegmentIndex, write_index
from allotment.adapters.archive.store import ArchiveUnreachable, Store, normal
from allotment.adapters.archive.verify import gaps, seams, verify
from allotment.adapters.log import exported
from allotment.core.explain.history.concerned import StretchIndex
from allotment.core.logport import Record
from allotment_proto.codec import decode_envelope
from tests.recorded import read_log
from tests.segmenting import Segmented, header_of, rewritten, segmented, written

CLOSED_AFTER = (120, 300)


@pytest.fixture(scope="module")
def log() -> Segmented:
    return segmented(read_log("churn-best-fit"), CLOSED_AFTER)


@pytest.fixture(autouse=True)
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_file, "FRAME_BYTES", 10_000)


def opened(data: bytes, name: str) -> SegmentFile:
    return SegmentFile(name, len(data), lambda offset, size: data[offset : offset + size])


def records_of(file: SegmentFile) -> list[Record]:
    return [
        record
        for index in range(len(file.frames))
        for record in file.records(index, file.packed(index))
    ]


@pytest.mark.parametrize("number", [1, 2])
def test_the_records_come_out_as_they_went_in(log: Segmented, number: int) -> None:
    data, done = written(log, number)
    file = opened(data, done.name)
    closed = log.closed[number - 1]
    assert len(file.frames) > 3
    assert records_of(file) == log.records[closed.first_seq - 1 : closed.last_seq]
    assert file.footer.records == closed.last_seq - closed.first_seq + 1
    at = file.frame_of(closed.last_seq - 1)
    assert closed.last_seq - 1 in {record.seq for record in file.records(at, file.packed(at))}


def test_an_index_says_what_the_records_do_and_many_keys_are_read_at_once(
    log: Segmented, tmp_path: Path
) -> None:
    """As each pod of a node is asked about: a read for each would take longer than all records."""
    data, done = written(log)
    (tmp_path / done.name).write_bytes(data)
    path, reads = write_index(tmp_path / done.name), list[int]()

    def read(offset: int, size: int) -> bytes:
        reads.append(size)
        return path.read_bytes()[offset : offset + size]

    whole = StretchIndex()
    for record in log.records[: log.closed[0].last_seq]:
        for event in decode_envelope(record.payload, record.subject).events:
            whole.note(event, record.seq)
    keys, chain = [*whole.about, *whole.uids], opened(data, done.name).header.chain
    assert len(keys) > 50
    found = SegmentIndex(path.name, chain, read).under(keys)
    assert (found.about, found.uids) == (whole.about, whole.uids)
    assert len(reads) == 2
    one = SegmentIndex(path.name, chain, read).under(keys[:1])
    assert one.about == {keys[0]: whole.about[keys[0]]}
    assert sum(reads[2:]) < sum(reads[:2]) / 2


def test_the_same_records_give_the_same_bytes(log: Segmented) -> None:
    assert written(log) == written(log)


@pytest.mark.parametrize("number", [1, 2])
def test_a_sound_file_is_verified_and_folded(log: Segmented, number: int) -> None:
    data, done = written(log, number)
    found = verify(opened(data, done.name))
    assert (
        (found.sha256, found.size_bytes)
        == (done.sha256, done.size_bytes)
        == (
            found.sha256,
            len(data),
        )
    )
    assert found.decisions > 5


def test_the_file_is_a_zstd_stream_of_an_exported_log(log: Segmented, tmp_path: Path) -> None:
    data, done = written(log)
    plain = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    lines = plain.decode().splitlines()
    assert [exported.decode(line, "here") for line in lines] == log.records[: len(lines)]
    first = data.split(b"\n", 1)[0][8:]
    assert json.loads(first)["number"] == 1
    path = tmp_path / done.name
    path.write_bytes(data)
    shown = subprocess.run(["head", "-1", path], capture_output=True, check=True).stdout
    assert shown[8:].startswith(b'{"format":"allotment-segment"')


def test_any_flipped_byte_is_found(log: Segmented) -> None:
    data, done = written(log, 2)
    dice, size = random.Random(7), len(data) - archive_file.FOOTER_BYTES
    for at in [0, 9, size - 1, size, *(dice.randrange(size) for _ in range(150))]:
        torn = bytearray(data)
        torn[at] ^= 1 << dice.randrange(8)
        with pytest.raises(SegmentBroken, match=done.name):
            verify(opened(bytes(torn), done.name), folds=False)


def test_a_flipped_byte_names_the_first_record_of_its_frame(log: Segmented) -> None:
    data, done = written(log)
    frame = opened(data, done.name).frames[2]
    torn = bytearray(data)
    torn[frame.offset + frame.size // 2] ^= 1
    with pytest.raises(SegmentBroken, match=f"first bad record: {frame.first_seq}") as caught:
        verify(opened(bytes(torn), done.name))
    assert caught.value.first_seq == frame.first_seq


def test_a_torn_file_is_named(log: Segmented) -> None:
    data, done = written(log)
    for size in (0, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(SegmentBroken, match=r"torn|damaged"):
            verify(opened(data[:size], done.name))


def test_an_altered_record_is_named_exactly(log: Segmented) -> None:
    def change(record: Record) -> Record:
        if record.seq != 77:
            return record
        return Record(77, record.subject, b'{"v":1}', record.time_ns, record.msg_id)

    data, name = rewritten(log, change)
    with pytest.raises(SegmentBroken, match="record 77 is altered") as caught:
        verify(opened(data, name))
    assert caught.value.first_seq == 77


def test_swapped_frames_are_named(log: Segmented) -> None:
    data, done = written(log)
    file = opened(data, done.name)
    one, two = file.frames[1:3]
    bytes_of = {
        frame.first_seq: data[frame.offset : frame.offset + frame.size] for frame in (one, two)
    }
    swapped = (
        data[: one.offset]
        + bytes_of[two.first_seq]
        + bytes_of[one.first_seq]
        + data[two.offset + two.size :]
    )
    with pytest.raises(SegmentBroken) as caught:
        verify(opened(swapped, done.name))
    assert caught.value.first_seq == one.first_seq


def test_swapped_frames_of_one_length_are_named(log: Segmented) -> None:
    """The seek table is made to fit: only the records show it."""
    data, done = written(log)
    file = opened(data, done.name)
    one, two = file.frames[1:3]
    packed = {0: file.packed(1), 1: file.packed(2)}

    def read(offset: int, size: int) -> bytes:
        for index, frame in enumerate((one, two)):
            if (offset, size) == (frame.offset, frame.size):
                return packed[1 - index]
        return data[offset : offset + size]

    with pytest.raises(SegmentBroken, match="frames are swapped") as caught:
        verify(SegmentFile(done.name, len(data), read))
    assert caught.value.first_seq == one.first_seq


def test_swapped_files_are_named(log: Segmented) -> None:
    (data, _), (_, other) = written(log, 1), written(log, 2)
    with pytest.raises(SegmentBroken, match="it holds segment-00000001"):
        verify(opened(data, other.name))


def test_missing_and_foreign_segments_are_named(log: Segmented, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "archive"), makes=True)
    other = segmented(read_log("joined"), (5, 15, 25))
    for number in (1, 3):
        data, done = written(other, number)
        (tmp_path / "file").write_bytes(data)
        store.put(tmp_path / "file", done.name)
    (wrong,) = gaps(store.list())
    assert wrong.text.startswith("segment 2: records")
    assert wrong.first_seq == other.closed[1].first_seq
    headers = [header_of(other, other.closed[0]), header_of(log, log.closed[1])]
    (wrong,) = seams(headers)
    assert "continues another history" in wrong.text


def test_a_hole_and_a_wrong_chain_are_not_written(log: Segmented) -> None:
    closed = log.closed[0]
    writer = Writer(io.BytesIO(), header_of(log, closed))
    writer.add(log.records[0])
    with pytest.raises(SegmentBroken, match="record 3 came where 2 was due"):
        writer.add(log.records[2])
    writer = Writer(io.BytesIO(), header_of(log, closed))
    for record in log.records[: closed.last_seq - 1]:
        writer.add(record)
    with pytest.raises(SegmentBroken, match=f"first bad record: {closed.last_seq}"):
        writer.close()
    last = log.records[closed.last_seq - 1]
    writer.add(Record(last.seq, last.subject, b"{}", last.time_ns, last.msg_id))
    with pytest.raises(SegmentBroken, match="the record that closes the segment names"):
        writer.close()


@pytest.mark.parametrize("url", ["", "s4://x", "file://here", "s3://"])
def test_a_wrong_url_says_what_is_right(url: str) -> None:
    with pytest.raises(ValueError, match="s3://BUCKET/PREFIX"):
        normal(url)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "none"))
    with pytest.raises(ArchiveUnreachable, match=f"file://{tmp_path}/none cannot be listed"):
        store.list()


def test_a_frame_that_would_take_all_memory_is_refused(log: Segmented) -> None:
    data, done = written(log)
    file = opened(data, done.name)
    bomb = zstandard.compress(bytes(archive_file.FRAME_BYTES_MAX + 1))
    with pytest.raises(SegmentBroken, match="holds more than"):
        file.records(0, bomb)
