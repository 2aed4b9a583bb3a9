"""What to write in place of others' names and of amounts in another unit, and that it fits."""

import msgspec
import pytest

from allotment.core.explain.causes.counterfactual import Bench, found_on
from allotment.core.explain.causes.obstacles import present
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.doctor import findings
from allotment.core.explain.history.pod_story import PodStory
from allotment.core.explain.pod import explain
from allotment.core.explain.rows.schema import Counterfactual
from allotment.core.explain.rows.words import line_text
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply_all
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.base import MIB, Sense, in_other_unit
from allotment.core.placement.devices.foreign import (
    ANNOTATIONS,
    RESOURCES,
    meant_by,
)
from allotment.core.placement.unserved import unserved
from allotment_proto.codec import decode_envelope
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import NodeObserved
from allotment_proto.facts import PodRequest, Problem, Selection
from tests import build
from tests.recording import Recorder, uid_of
from tests.unit.kube_json import asks, container, pod_json, seen

LISTED = tuple(
    (f"volcano.sh/vgpu-{name}", amount)
    for name, amount in (("cores", 200), ("memory", 81_920), ("number", 20))
)
CARDS = "volcano.sh/vgpu-number: 1"


def told(limits: dict[str, str], *listed: tuple[str, int], cards: int = 2) -> tuple[str, str, str]:
    """The first sentence about a pod with these limits, the first change, and its line. Its one
    node has so many cards of 40,960 MiB that are shared, and lists `listed`.
    """
    log = Recorder()
    log.node("n1", cards=cards, extended=(*(LISTED if cards else ()), *listed))
    log.decide(log.pod("p", asks(limits).request))
    pod = log.state.pods[uid_of("default/p")]
    assert pod.refusal is not None
    why = Whys(log.state).of(pod).text
    assert any(why in found.message for found in findings(log.state, 0))
    first = changes(log)[0]
    assert first.nodes_fit == 1 or first.nodes_fit_now == 1, first
    return why, first.text, line_text(first.change)


def changes(log: Recorder) -> tuple[Counterfactual, ...]:
    """What would make the pod fit."""
    story, state = PodStory("default", "p"), ClusterState()
    for record in log.records:
        envelope = decode_envelope(record.payload)
        apply_all(state, envelope.events, record.seq)
        story.follow(record.seq, record.time_ns // 1_000_000, envelope, lambda: state)
    return explain(state, story, log.now_ms).counterfactuals


@pytest.mark.parametrize(
    ("written", "meant", "shown"),
    [
        ("4Gi", 4096, "4.0 GiB"),
        ("4096Mi", 4096, "4.0 GiB"),
        ("40Gi", 40_960, "40.0 GiB"),
        ("4G", 4000, "3.9 GiB"),
        ("16000Mi", 16_000, "15.6 GiB"),
        ("3e9", 3000, "2.9 GiB"),
    ],
)
def test_memory_in_another_unit_is_said_as_one_and_its_correction_fits(
    written: str, meant: int, shown: str
) -> None:
    why, change, line = told({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": written})
    said = f"volcano.sh/vgpu-memory: {meant}"
    assert why == f"volcano.sh/vgpu-memory counts MiB: write {said} for {shown}"
    assert (change, line) == (f"write {said}", said)


@pytest.mark.parametrize("amount", [1, 40_960, 81_920, 294_912, (1 << 20) - 1])
def test_what_a_card_could_have_is_meant_as_it_is(amount: int) -> None:
    assert in_other_unit(amount) == 0


@pytest.mark.parametrize(
    ("amount", "unit_bytes", "meant"),
    [
        (4096 << 10, MIB, 4),
        (40_000 << 10, MIB, 40_000),
        (81_920 << 20, MIB, 81_920),
        (80 << 30, 1024 * MIB, 80),
        (7_000_000_001, MIB, 0),
    ],
)
def test_which_unit_was_meant(amount: int, unit_bytes: int, meant: int) -> None:
    assert in_other_unit(amount, unit_bytes) == meant


@pytest.mark.parametrize(
    ("limits", "listed", "names", "lines"),
    [
        (
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"},
            (),
            "nvidia.com/gpu, nvidia.com/gpucores and nvidia.com/gpumem (HAMi)",
            (CARDS, "volcano.sh/vgpu-memory: 3000", "volcano.sh/vgpu-cores: 30"),
        ),
        (
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"},
            (("nvidia.com/gpu", 1),),
            "nvidia.com/gpumem (HAMi)",
            (CARDS, "volcano.sh/vgpu-memory: 3000"),
        ),
        ({"nvidia.com/gpu": "2"}, (), "nvidia.com/gpu", ("volcano.sh/vgpu-number: 2",)),
        (
            {"koordinator.sh/gpu-memory": "4Gi", "koordinator.sh/gpu-core": "50"},
            (),
            "koordinator.sh/gpu-core and koordinator.sh/gpu-memory (Koordinator)",
            (CARDS, "volcano.sh/vgpu-memory: 4096", "volcano.sh/vgpu-cores: 50"),
        ),
        (
            {"koordinator.sh/gpu": "200"},
            (),
            "koordinator.sh/gpu (Koordinator)",
            (
                "volcano.sh/vgpu-number: 2",
                "volcano.sh/vgpu-memory-percentage: 100",
                "volcano.sh/vgpu-cores: 100",
            ),
        ),
        (
            {"aliyun.com/gpu-mem": "3"},
            (),
            "aliyun.com/gpu-mem (Aliyun)",
            (CARDS, "volcano.sh/vgpu-memory: 3072"),
        ),
        (
            {"volcano.sh/vgpu-number": "1", "nvidia.com/gpumem": "3000"},
            (),
            "nvidia.com/gpumem (HAMi)",
            ("volcano.sh/vgpu-memory: 3000",),
        ),
    ],
)
def test_names_of_others_are_translated_and_the_translation_fits(
    limits: dict[str, str], listed: tuple[tuple[str, int], ...], names: str, lines: tuple[str, ...]
) -> None:
    why, change, line = told(limits, *listed)
    written = lines[0] if len(lines) == 1 else f"{', '.join(lines[:-1])} and {lines[-1]}"
    assert why == f"no node offers {names}; write {written} instead"
    assert change.startswith(f"write {written} in place of ")
    assert line == (lines[0] if len(lines) == 1 else f"limits: {{{', '.join(lines)}}}")


def test_where_cards_are_whole_a_share_of_one_is_asked_for_as_one() -> None:
    why, _, line = told({"nvidia.com/gpumem": "3000"}, ("nvidia.com/gpu", 4), cards=0)
    assert why.endswith("nodes here give whole cards only: write nvidia.com/gpu: 1 instead")
    assert line == "nvidia.com/gpu: 1"


def test_a_model_that_is_there_as_whole_cards_only_is_said_with_what_to_write() -> None:
    """H100 asked for as a share, and all H100 stand on a node that gives whole cards."""
    state = build.state_of(sharing_node(), whole_node())
    fact = seen(pod_json(container(limits=SHARE), annotations={"nvidia.com/use-gputype": "H100"}))
    (said,) = unserved(state, fact.request)
    assert said == (
        "node whole gives NVIDIA-H100-80GB-HBM3 as whole cards only: write nvidia.com/gpu: 1 in "
        "place of volcano.sh/vgpu-number"
    )
    (waits,) = findings(build.state_of(sharing_node(), whole_node(), fact), 0)
    assert (waits.code, waits.message) == ("NotOffered", said)
    found = found_on(Bench(state, present(state)), fact.request)
    first = found[0]
    assert line_text(first.change) == "nvidia.com/gpu: 1"
    assert first.nodes_fit == 1
    t4 = msgspec.structs.replace(fact.request, selection=Selection(use_types=("T4",)))
    assert unserved(state, t4) == ()


SHARE = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "4096"}


def sharing_node() -> NodeObserved:
    return build.node("share", 2, extended=LISTED)


def whole_node() -> NodeObserved:
    labels = (("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),)
    return build.node("whole", 0, extended=(("nvidia.com/gpu", 8),), labels=labels)


def test_a_misspelt_name_is_one_of_the_changes() -> None:
    _, change, line = told({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memori": "4096"})
    assert change == "write volcano.sh/vgpu-memory: 4096 in place of volcano.sh/vgpu-memori"
    assert line == "volcano.sh/vgpu-memory: 4096"


@pytest.mark.parametrize("name", sorted(RESOURCES))
def test_every_name_of_the_table_is_said_where_no_node_offers_it(name: str) -> None:
    log = Recorder()
    log.node("n1", cards=2, extended=LISTED)
    said = "".join(unserved(log.state, PodRequest(extended=((name, 1),))))
    if name in FAMILIES["vgpu"].senses(DeviceConfig()).values():
        assert "; write" not in said  # it is what this cluster serves
        return
    assert name in said
    assert "; write volcano.sh/vgpu-" in said


def test_no_name_of_the_table_is_translated_where_it_is_offered() -> None:
    log = Recorder()
    log.node("n1", cards=2, extended=(*LISTED, ("nvidia.com/gpu", 8)))
    assert unserved(log.state, asks({"nvidia.com/gpu": "1"}).request) == ()


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("nvidia.com/use-gpuuuid", "GPU-1", "volcano.sh/vgpu-use-gpuuuid"),
        (
            "gpu-fraction",
            "0.5",
            f"limits {CARDS} and volcano.sh/vgpu-memory-percentage: 50",
        ),
        ("gpu-memory", "4096", f"limits {CARDS} and volcano.sh/vgpu-memory: 4096"),
        ("gpu-fraction", "much", "limits volcano.sh/vgpu-number"),
        ("kai.scheduler/queue", "q", "scheduling.volcano.sh/queue-name"),
        ("prometheus.io/scrape", "true", ""),
    ],
)
def test_annotations_of_others(key: str, value: str, meant: str) -> None:
    assert meant_by(key, value, ("vgpu",), DeviceConfig()) == meant


def test_the_table_is_whole() -> None:
    """Each row counts something or has a key, and what families call things is in it."""
    assert all(row.senses or row.key for row in (*RESOURCES.values(), *ANNOTATIONS.values()))
    own = {name for f in FAMILIES.values() for name in f.senses(DeviceConfig()).values()}
    assert own <= RESOURCES.keys()
    assert {sense for row in RESOURCES.values() for sense in row.senses} == {*Sense}


@pytest.mark.parametrize(
    ("resource", "written", "meant"),
    [
        ("volcano.sh/gpu-memory", "4Gi", 4096),
        ("huawei.com/Ascend310P-memory", "3Gi", 3072),
    ],
)
def test_a_refusal_of_too_much_memory_says_the_unit(
    resource: str, written: str, meant: int
) -> None:
    problem = asks({resource: written, **COUNTED.get(resource, {})}).problem
    assert isinstance(problem, Problem)
    assert f"counts MiB: write {resource}: {meant} for" in problem.message


COUNTED = {"huawei.com/Ascend310P-memory": {"huawei.com/Ascend310P": "1"}}
