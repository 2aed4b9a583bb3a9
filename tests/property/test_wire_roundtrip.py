"""What is encoded decodes to itself, whatever the names; garbage is refused, never misread."""

import contextlib
import re
from urllib.parse import unquote

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allotment.core import units
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope, decode_message, encode
from allotment_proto.events import Envelope, Event
from allotment_proto.facts import CardFact, Holding
from allotment_proto.messages import Feasible, Settled
from allotment_proto.volcano import keys, selection, vgpu
from tests import strategies as own

TOKEN = re.compile(r"[A-Za-z0-9_%-]+")
anything = st.text() | st.text(st.characters())


@given(anything)
def test_subject_tokens(name: str) -> None:
    token = subjects.escape(name)
    assert TOKEN.fullmatch(token)
    assert (token == "%") == (not name)
    assert unquote(token.removesuffix("%"), errors="surrogatepass") == name, "no two names are one"


@given(st.lists(own.events(), max_size=3))
def test_envelopes(events: list[Event]) -> None:
    envelope = Envelope(v=1, at_ms=1, by="x", events=tuple(events))
    payload = encode(envelope)
    assert decode_envelope(payload) == envelope
    assert encode(decode_envelope(payload)) == payload


@given(st.from_regex(r"[!-~é漢]{1,256}", fullmatch=True), st.integers(0, 1 << 53))
def test_messages(cycle: str, seq: int) -> None:
    settled = Settled(v=1, cycle=cycle, outcome="decided", seq=seq)
    assert decode_message(Settled, encode(settled)) == settled


@given(st.binary() | st.text().map(str.encode))
def test_garbage_is_undecodable(payload: bytes) -> None:
    for decode in (decode_envelope, lambda p: decode_message(Feasible, p)):
        with contextlib.suppress(UndecodableError):
            decode(payload)


@given(own.cards("n1"))
def test_register_strings(cards: tuple[CardFact, ...]) -> None:
    """Which table cuts a card is configured, not registered."""
    registered = tuple(msgspec.structs.replace(card, table=-1) for card in cards)
    assert vgpu.decode_register(vgpu.encode_register(cards)).cards == registered


@given(st.text())
def test_any_register_string_is_read_or_reported(text: str) -> None:
    register = vgpu.decode_register(text)
    assert register.cards or register.problems
    ids = [card.id for card in register.cards]
    assert len(set(ids)) == len(ids)


sizes = st.integers(0, (1 << 32) - 1)
entries = st.builds(
    Holding, st.just("vgpu"), st.integers(0, 3), st.from_regex(r"GPU-[a-z0-9]+", fullmatch=True),
    sizes, st.integers(0, 100),
)  # fmt: skip


@given(st.lists(entries, min_size=1))
def test_assignments(holdings: list[Holding]) -> None:
    groups, problems = vgpu.decode_assignment(vgpu.encode_assignment(tuple(holdings)))
    asking = sorted({h.container for h in holdings})
    assert not problems
    assert len(groups) == len(asking)
    for container, group in zip(asking, groups, strict=True):
        wanted = [(h.card, h.memory_mib, h.cores_pct) for h in holdings if h.container == container]
        assert [(e.card, e.memory_mib, e.cores_pct) for e in group] == wanted


@given(st.text())
def test_any_assignment_is_read_or_reported(text: str) -> None:
    groups, _ = vgpu.decode_assignment(text)
    assert len(groups) == text.count(";") + 1


ANNOTATIONS = (
    keys.USE_GPUTYPE,
    keys.NOUSE_GPUTYPE,
    keys.USE_GPUUUID,
    keys.NOUSE_GPUUUID,
    keys.VGPU_MODE,
    keys.GPU_INDEX,
)


@given(st.dictionaries(st.sampled_from(ANNOTATIONS), st.text()))
def test_any_selection_is_read_or_reported(annotations: dict[str, str]) -> None:
    chosen, problems = selection.decode(annotations)
    for words in (chosen.use_types, chosen.nouse_types, chosen.use_ids, chosen.nouse_ids):
        assert words != (), "an empty list would silently mean all or none"
    assert chosen.indexes != () or problems


@given(st.text(st.sampled_from("0123456789.+-eEkKmMGiTPunE")))
def test_any_quantity_is_read_or_refused(text: str) -> None:
    for read in (units.milli, units.whole_up, units.count):
        with contextlib.suppress(units.QuantityError):
            assert 0 <= read(text) <= units.LIMIT


@given(st.integers(0, 1 << 60))
def test_whole_quantities_round_trip(value: int) -> None:
    assert units.count(str(value)) == units.whole_up(str(value)) == value
