"""Yesterday's records decode for ever, to the very values they were made of."""

from pathlib import Path

import pytest

from allotment_proto import samples, subjects
from allotment_proto.codec import (
    Message,
    UndecodableError,
    decode_envelope,
    decode_message,
    encode,
)
from allotment_proto.events import Envelope, Event
from allotment_proto.messages import Feasible, Proposal, Settled
from allotment_proto.schema.__main__ import write
from allotment_proto.schema.asyncapi import CHANNELS

PIPELINE = ("Feasible", "Proposal", "Settled")
FILES = sorted(samples.FOLDER.glob("*.json"))


def _decode(path: Path) -> Envelope | Message:
    payload = path.read_bytes()
    match path.name.split(".")[0]:
        case "Feasible":
            return decode_message(Feasible, payload)
        case "Proposal":
            return decode_message(Proposal, payload)
        case "Settled":
            return decode_message(Settled, payload)
        case _:
            return decode_envelope(payload)


def test_every_type_has_a_sample() -> None:
    kinds = {kind.__name__ for kind in Event.__args__} | set(PIPELINE)
    assert {path.name.split(".")[0] for path in FILES} >= kinds


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_old_samples_decode(path: Path) -> None:
    assert _decode(path) is not None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_event_counts_on_the_subjects_that_the_document_names_for_it(path: Path) -> None:
    kind = path.name.split(".")[0]
    if kind in PIPELINE:
        return
    homes = {c.address for c in CHANNELS if kind in [known.__name__ for known in c.types]}
    for subject in homes:
        assert decode_envelope(path.read_bytes(), subject)
    for subject in {subjects.DECISION, subjects.OUTCOME, subjects.FACTS} - homes:
        if subject != subjects.FACTS or not homes.isdisjoint((subjects.DECISION, subjects.OUTCOME)):
            with pytest.raises(UndecodableError, match=f"{kind} is not for {subject}"):
                decode_envelope(path.read_bytes(), subject)


@pytest.mark.parametrize("name", sorted(samples.values()))
def test_current_samples_mean_what_they_were_made_of(name: str) -> None:
    assert _decode(samples.FOLDER / name) == samples.values()[name]


@pytest.mark.parametrize("name", sorted(samples.values()))
def test_samples_are_spelt_out_in_full(name: str) -> None:
    """Encoding writes every field, so a sample shows the whole type, in order."""
    assert encode(samples.values()[name]) == encode(_decode(samples.FOLDER / name))


def test_write_never_changes_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "FOLDER", tmp_path)
    old = tmp_path / "Bound.v1.json"
    old.write_bytes(b"as it was")
    write()
    assert old.read_bytes() == b"as it was"
    assert (tmp_path / "Decided.v1.json").exists()
