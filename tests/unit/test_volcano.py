"""Volcano's encodings, beyond what the vectors cover: our limits, and what is reported."""

import pytest

from allotment_proto.facts import Holding
from allotment_proto.volcano import gpushare, keys, selection, vgpu
from tests import build

CARD = "GPU-a,10,16000,NVIDIA-T4,true,hami-core:"


@pytest.mark.parametrize(
    ("text", "cards", "says"),
    [
        (CARD, 1, None),
        (CARD + "GPU-b,10,16000,NVIDIA-T4,TRUE,hami-core", 2, None),
        ("", 0, "holds no card"),
        ("junk", 0, "every entry must end in ':'"),
        ("::", 0, "holds no card"),
        (CARD + CARD, 0, "card id GPU-a occurs twice"),
        (CARD + ",10,1,NVIDIA,true,hami-core:", 0, "entry 1 has no card id"),
        (CARD + "GPU-b,10:", 0, "entry 1 has 2 fields; wanted are 6"),
        ("GPU-a,ten,16000,NVIDIA-T4,true,hami-core:", 1, "count is 'ten', not a whole number"),
        ("GPU-a,10," + "9" * 5_000 + ",NVIDIA,true,hami-core:", 1, "memory is '9999"),
        ("GPU-a,10,16000,NVIDIA-T4,true,mps:", 1, None),
        ("GPU-a,10,16000,NVIDIA-T4,true,own:", 1, "mode 'own' is not known; read as hami-core"),
        (CARD + "GPU-b,1,1,NVIDIA,true,mig:", 2, "different modes ['hami-core', 'mig']"),
    ],
)
def test_register(text: str, cards: int, says: str | None) -> None:
    register = vgpu.decode_register(text)
    assert len(register.cards) == cards
    messages = [problem.message for problem in register.problems]
    assert [says in message for message in messages if says] == ([True] if says else [])
    assert all(len(message) < 300 for message in messages)


def test_a_hole_in_the_register_counts_as_a_position() -> None:
    register = vgpu.decode_register(CARD + ":" + CARD.replace("GPU-a", "GPU-b"))
    assert [card.index for card in register.cards] == [0, 2]


@pytest.mark.parametrize("size", [str(1 << 32), "-1", "1.5", "", "٣", "9" * 5_000])
def test_assignment_amounts_beyond_32_bits(size: str) -> None:
    (entries,), (problem,) = vgpu.decode_assignment(f"GPU-a,NVIDIA,{size},1:")
    assert entries == ()
    assert problem.code == "BrokenAssignment"


def test_vgpu_binding_annotations() -> None:
    assert vgpu.binding_annotations("n1", (build.holding("GPU-0", 3_000, 30),), 100, 99) == {
        keys.VGPU_NODE: "n1",
        keys.VGPU_TIME: "100",
        keys.VGPU_IDS: "GPU-0,NVIDIA,3000,30:",
        keys.DEVICES_TO_ALLOCATE: "GPU-0,NVIDIA,3000,30:",
        keys.BIND_PHASE: "allocating",
        keys.BIND_TIME: "99",
    }


def test_gpushare_binding_annotations() -> None:
    held = tuple(Holding("gpushare", 0, card, 0, 100) for card in ("10", "2"))
    assert gpushare.binding_annotations(held, 7) == {
        keys.GPU_INDEX: "2,10",
        keys.PREDICATE_TIME: "7000000000",
    }


@pytest.mark.parametrize(
    ("text", "indexes", "problems"),
    [
        ("0, 2,0", (0, 2), 0),
        ("", (), 0),
        (",,", (), 0),
        ("x,1", (1,), 1),
        ("-1", (), 1),
        ("9" * 5_000, (), 1),
    ],
)
def test_index_lists(text: str, indexes: tuple[int, ...], problems: int) -> None:
    found, said = gpushare.decode_indexes(text, "here")
    assert (found, len(said)) == (indexes, problems)


def test_cards_from_capacity_share_the_memory_equally() -> None:
    cards = gpushare.cards_from_capacity(100, 3, frozenset((1,)))
    assert [(c.id, c.memory_mib, c.healthy) for c in cards] == [
        ("0", 33, True),
        ("1", 33, False),
        ("2", 33, True),
    ]


@pytest.mark.parametrize(
    ("annotations", "place"),
    [
        ({keys.USE_GPUTYPE: " , "}, keys.USE_GPUTYPE),
        ({keys.NOUSE_GPUTYPE: ""}, keys.NOUSE_GPUTYPE),
        ({keys.VGPU_MODE: "time-slicing"}, keys.VGPU_MODE),
        ({keys.VGPU_MODE: ""}, keys.VGPU_MODE),
        ({keys.GPU_INDEX: ","}, keys.GPU_INDEX),
        ({keys.GPU_INDEX: "first"}, keys.GPU_INDEX),
    ],
)
def test_selections_that_cannot_be_meant(annotations: dict[str, str], place: str) -> None:
    _, problems = selection.decode(annotations)
    assert [problem.place for problem in problems] == [f"annotation {place}"]


def test_selection() -> None:
    found, problems = selection.decode(
        {
            keys.USE_GPUTYPE: " A100 ,V100,",
            keys.NOUSE_GPUTYPE: "T4",
            keys.USE_GPUUUID: ",",
            keys.NOUSE_GPUUUID: "GPU-1, GPU-2",
            keys.VGPU_MODE: "mig",
            keys.GPU_INDEX: "2,0",
        }
    )
    assert problems == ()
    assert found.use_types == ("A100", "V100")
    assert found.nouse_types is None, "not looked at when use is given"
    assert found.use_ids is None, "a list that says nothing"
    assert found.nouse_ids == ("GPU-1", "GPU-2")
    assert (found.mode, found.indexes) == ("mig", (0, 2))
