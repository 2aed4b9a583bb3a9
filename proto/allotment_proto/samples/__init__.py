"""One real payload per (type, version), frozen next to this file, and the values they were made of.

A file that exists never changes: it stands for the logs that are already written. A change of a
type adds a value here under the new version, and the old file keeps showing that it still decodes.
"""

from pathlib import Path

from allotment_proto.codec import Message
from allotment_proto.device_config import (
    AscendChip,
    AscendTemplate,
    DeviceConfig,
    MigModel,
    NodeConfig,
    Nvidia,
)
from allotment_proto.events import (
    ENVELOPE_VERSION,
    BindFailed,
    Bound,
    CheckpointPart,
    ConfigurationChecked,
    Corrected,
    Decided,
    DevicesConfigured,
    Dropped,
    Envelope,
    Event,
    Evicted,
    GroupGone,
    GroupObserved,
    LevelRaised,
    MixLearned,
    NodeGone,
    NodeObserved,
    Placement,
    PodGone,
    PodObserved,
    PolicyLoaded,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
    Refusal,
    RunnerUp,
    SegmentArchived,
    SegmentClosed,
    SegmentClosing,
    SegmentsDropped,
    StageTime,
    TimePassed,
)
from allotment_proto.facts import (
    CardFact,
    Constraints,
    DeviceRequest,
    Expression,
    Geometry,
    Holding,
    Inventory,
    NodeTerm,
    PodRequest,
    Policy,
    Problem,
    Profile,
    Selection,
    SubGroups,
    Taint,
    TaskTopology,
    Toleration,
    Typical,
)
from allotment_proto.messages import (
    MESSAGE_VERSION,
    ClassFeasible,
    Feasible,
    Proposal,
    Settled,
)
from allotment_proto.registry import check_complete

FOLDER = Path(__file__).parent
AT_MS = 1_763_718_000_123
GIB = 1 << 30

_REQUEST = PodRequest(
    cpu_milli=500,
    memory_bytes=2 * GIB,
    extended=(("volcano.sh/vgpu-cores", 50), ("volcano.sh/vgpu-number", 1)),
    devices=(DeviceRequest("vgpu", 0, "trainer", 1, 3000, 0, 50),),
    selection=Selection(mode="hami-core", use_types=("A100", "V100"), nouse_ids=("GPU-dead",)),
    constraints=Constraints(
        node_selector=(("kubernetes.io/arch", "amd64"),),
        affinity=(NodeTerm((Expression("zone", "In", ("a", "b")),)),),
        tolerations=(Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule"),),
    ),
)
_HOLDING = Holding("vgpu", 0, "GPU-0a", 3000, 50)
_PLACEMENT = Placement(
    uid="6f0c1c2e-1",
    namespace="team-a",
    name="train-0",
    node="gpu-1.example.com",
    holdings=(_HOLDING,),
    cpu_milli=500,
    memory_bytes=2 * GIB,
    extended=_REQUEST.extended,
    score_micro=91_550_000,
    terms=(("device", 91_552_730), ("host", 4_000_000)),
    runners_up=(RunnerUp("gpu-2.example.com", 80_000_000, ("GPU-1a",)),),
    feasible=2,
    nodes=4,
    stamp_s=1_763_718_000,
)
_DROPPED = Dropped(
    Placement(
        "6f0c1c2e-2", "team-a", "train-1", "gpu-1.example.com", (), 0, 0, (), 0, (), (), 1, 4
    ),
    "StaleLedger",
)
_REFUSAL = Refusal(
    "6f0c1c2e-3", "team-a", "huge-0", 4, (("InsufficientGPUMemory", 3), ("NoGPU", 1))
)
_STAGE = StageTime("filter", "filter-0", 1_763_718_000_100_000, 1_763_718_000_101_500)

EVENTS: tuple[Event, ...] = (
    NodeObserved(
        name="gpu-1.example.com",
        uid="node-1",
        rv=1042,
        labels=(("kubernetes.io/arch", "amd64"), ("zone", "a")),
        taints=(Taint("nvidia.com/gpu", "", "NoSchedule"),),
        cpu_milli=64_000,
        memory_bytes=256 * GIB,
        pods=110,
        extended=(("volcano.sh/vgpu-cores", 100), ("volcano.sh/vgpu-number", 10)),
        inventories=(
            Inventory(
                "vgpu",
                "hami-core",
                (CardFact("GPU-0a", 0, "NVIDIA-A100", 10, 40_960, 100, True, "hami-core"),),
            ),
        ),
        problems=(Problem("BrokenIndexList", "annotation x", "'y' is not a card index"),),
    ),
    NodeGone(name="gpu-1.example.com", uid="node-1", rv=2000),
    PodObserved(
        uid="6f0c1c2e-1",
        namespace="team-a",
        name="train-0",
        rv=1050,
        created_ms=AT_MS - 500,
        scheduler="volcano",
        request=_REQUEST,
        priority=100,
        phase="Running",
        node="gpu-1.example.com",
        holdings=(_HOLDING,),
        bind_phase="success",
        group="team-a/train",
    ),
    PodObserved(
        uid="6f0c1c2e-4",
        namespace="team-a",
        name="notebook",
        rv=1051,
        created_ms=AT_MS,
        scheduler="volcano",
        phase="Pending",
        request=_REQUEST,
        priority=1_000,
        class_priority=100,
        queue="default",
    ),
    PodGone(uid="6f0c1c2e-1", namespace="team-a", name="train-0", rv=1100),
    PolicyLoaded(
        policy=Policy(
            scheduler_names=("allotment", "volcano"),
            device_policy="spread",
            families=("vgpu", "gpushare"),
            namespace_turns=True,
        ),
        source="volcano-scheduler.conf",
        text_sha256="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ),
    MixLearned(
        policy="headroom",
        mix=(
            Typical(
                PodRequest(
                    cpu_milli=4_000,
                    memory_bytes=16 * GIB,
                    devices=(DeviceRequest("vgpu", 0, "", 1, 8_000, 0, 0),),
                ),
                650_000,
                195,
            ),
            Typical(
                PodRequest(devices=(DeviceRequest("vgpu", 0, "", 2, 0, 100, 100),)), 350_000, 2_000
            ),
        ),
        pods=1_200,
    ),
    ConfigurationChecked(
        kind="device",
        source="ConfigMap kube-system/volcano-vgpu-device-config",
        problems=(
            Problem(
                "InvalidDeviceConfig",
                "ConfigMap kube-system/volcano-vgpu-device-config:",
                "nvidia.deviceSplitCount is 'many'; wanted: a whole number",
            ),
        ),
    ),
    TimePassed(at_ms=1_795_000_000_000),
    DevicesConfigured(
        config=DeviceConfig(
            nvidia=Nvidia(
                mig=(
                    MigModel(
                        ("A30",),
                        (Geometry("group1", (Profile("1g.6gb", 6144, 4),)),),
                    ),
                )
            ),
            ascend=(
                AscendChip(
                    common_word="Ascend310P",
                    chip_name="310P3",
                    resource_name="huawei.com/Ascend310P",
                    resource_memory_name="huawei.com/Ascend310P-memory",
                    memory_allocatable_mib=21527,
                    memory_capacity_mib=24576,
                    ai_core=8,
                    ai_cpu=7,
                    templates=(AscendTemplate("vir01", 3072, 1, 1),),
                ),
            ),
            nodes=(NodeConfig("gpu-07", mode="mig", hidden_indexes=(3,)),),
        ),
        source="kube-system/volcano-vgpu-device-config",
        text_sha256="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ),
    GroupObserved(
        uid="2a1b-1",
        namespace="team-a",
        name="train",
        rv=1060,
        created_ms=AT_MS,
        queue="training",
        priority_class="high",
        min_member=3,
        min_task_member=(("worker", 3),),
        min_resources=(("cpu", 6_000), ("volcano.sh/vgpu-number", 3_000)),
        phase="Inqueue",
        card_request=(("NVIDIA-H200", 3_000),),
        waiting_most_ms=3_600_000,
    ),
    GroupObserved(
        uid="2a1b-2",
        namespace="team-a",
        name="podgroup-6f0c1c2e-4",
        rv=1063,
        created_ms=AT_MS,
        min_resources=(("cpu", 500),),
        owner="6f0c1c2e-4",
        sub_groups=(
            SubGroups(
                "worker",
                2,
                1,
                (Expression("volcano.sh/task-spec", "In", ("worker",)),),
                ("volcano.sh/partition-id",),
            ),
        ),
        task_topology=TaskTopology((("ps", "worker"),), (("ps",),), ("ps", "worker")),
    ),
    GroupGone(uid="2a1b-1", namespace="team-a", name="train", rv=1099),
    QueueObserved(
        uid="3c2d-1",
        name="training",
        rv=1061,
        created_ms=AT_MS,
        weight=4,
        capability=(("cpu", 64_000),),
        deserved=(("cpu", 32_000),),
        guarantee=(("cpu", 8_000),),
        priority=1,
        card_quota=(("NVIDIA-H200", 8_000),),
        node_groups=(("pool-a",), (), (), ()),
    ),
    QueueGone(uid="3c2d-1", name="training", rv=1098),
    PriorityClassObserved(uid="4d3e-1", name="high", rv=1062, value=1_000),
    PriorityClassGone(uid="4d3e-1", name="high", rv=1097),
    Corrected(
        uid="6f0c1c2e-2",
        namespace="team-a",
        name="train-1",
        node="gpu-1.example.com",
        decision=1054,
        holdings=(_HOLDING,),
        was=(Holding("vgpu", 0, "GPU-1a2b", 8_000, 50),),
        code="Misdelivered",
        message="its device plugin served it with the record of pod team-a/train-0",
        served="team-a/train-0",
    ),
    Evicted(
        uid="6f0c1c2e-9",
        namespace="team-b",
        name="batch-7",
        node="gpu-07",
        decision=1063,
        code="DisruptionBudget",
        message="the disruption budget team-b/batch allows no eviction now",
    ),
    Decided(
        cycle="filter-0/17",
        basis=1051,
        checked=1052,
        policy=3,
        batch=("6f0c1c2e-1", "6f0c1c2e-2", "6f0c1c2e-3"),
        placements=(_PLACEMENT,),
        dropped=(_DROPPED,),
        refusals=(_REFUSAL,),
        stages=(_STAGE,),
    ),
    Bound(
        uid="6f0c1c2e-1",
        namespace="team-a",
        name="train-0",
        node="gpu-1.example.com",
        decision=1053,
    ),
    BindFailed(
        uid="6f0c1c2e-1",
        namespace="team-a",
        name="train-0",
        node="gpu-1.example.com",
        decision=1053,
        code="BindConflict",
        message="pod train-0 is already assigned to node gpu-9",
        holdings=(_HOLDING,),
        cpu_milli=500,
        memory_bytes=2 * GIB,
        extended=_REQUEST.extended,
    ),
    SegmentClosing(number=7, cause="size"),
    CheckpointPart(closing=90_000, index=0, data=b"zstd"),
    SegmentClosed(
        number=7,
        at_ms=AT_MS,
        first_seq=70_001,
        last_seq=90_000,
        parts=1,
        image_bytes=480_000,
        digest="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        chain="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ),
    SegmentArchived(
        number=7,
        uri="s3://gpu-log/segment-00000007-70001-90000.allotment",
        sha256="2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        size_bytes=26_000_000,
    ),
    SegmentsDropped(last_seq=70_000),
    LevelRaised(level=2),
)
check_complete(f"{__name__}.EVENTS", {type(event) for event in EVENTS})

MESSAGES: tuple[Message, ...] = (
    Feasible(
        v=MESSAGE_VERSION,
        cycle="filter-0/17",
        basis=1051,
        batch=("6f0c1c2e-1", "6f0c1c2e-3"),
        classes=(
            ClassFeasible(0, 2, 4, (("NoGPU", 2),)),
            ClassFeasible(1, 0, 4, _REFUSAL.reasons),
        ),
        stages=(_STAGE,),
    ),
    Proposal(
        v=MESSAGE_VERSION,
        cycle="filter-0/17",
        basis=1051,
        policy=3,
        batch=("6f0c1c2e-1", "6f0c1c2e-3"),
        placements=(_PLACEMENT,),
        refusals=(_REFUSAL,),
        stages=(_STAGE,),
    ),
    Settled(v=MESSAGE_VERSION, cycle="filter-0/17", outcome="decided", seq=1053),
)


def values() -> dict[str, Envelope | Message]:
    """File name → value, for every type in its current version."""
    found: dict[str, Envelope | Message] = {
        f"{type(event).__name__}.v{ENVELOPE_VERSION}.json": Envelope(
            at_ms=AT_MS, by="sample-0", events=(event,)
        )
        for event in EVENTS
    }
    found.update({f"{type(m).__name__}.v{MESSAGE_VERSION}.json": m for m in MESSAGES})
    return found
