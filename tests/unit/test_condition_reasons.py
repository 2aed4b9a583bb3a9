"""Which waiting pods cluster autoscalers take for pods that need nodes."""

import pytest

from allotment.core.reasons import REASONS, UNSCHEDULABLE, condition_reason, refusal_reason
from allotment_proto.events import Refusal
from allotment_proto.facts import Problem


@pytest.mark.parametrize(
    "code",
    [
        "QueueQuotaInsufficient",
        "QueueOverused",
        "QueueUnknown",
        "QueueClosed",
        "PromisedBefore",
        "NamespaceLimitReached",
        "GangIncomplete",
        "GroupMissing",
        "InvalidRequest",
        "VolumeNotReady",
        "DevicePluginBusy",
        "SchedulerDefect",
        "Gated",
    ],
)
def test_what_no_node_would_end_has_its_own_reason(code: str) -> None:
    assert condition_reason(code) == code


@pytest.mark.parametrize(
    "code",
    [
        "InsufficientGPUMemory",
        "InsufficientCPU",
        "NoNodes",
        "NoGPU",
        "TaintNotTolerated",
        "SelectorMismatch",
        "PodAntiAffinity",
        "ClusterInsufficient",
        "NotEnoughResources",
        "HeldForGang",
        "GPUUnhealthy",
    ],
)
def test_what_a_node_might_end_is_unschedulable(code: str) -> None:
    assert condition_reason(code) == UNSCHEDULABLE
    assert code in REASONS


def refusal(*reasons: tuple[str, int], problem: Problem | None = None) -> Refusal:
    return Refusal("u", "default", "p", sum(count for _, count in reasons), reasons, problem)


def test_a_refusal_is_about_its_nodes_or_its_problem() -> None:
    assert refusal_reason(refusal(("NoGPU", 2), ("InsufficientGPUMemory", 3))) == UNSCHEDULABLE
    assert refusal_reason(refusal(("NoGPU", 2), ("DevicePluginBusy", 1))) == "DevicePluginBusy"
    without = refusal(("NoGPU", 2), ("CardWithoutQuota", 1))
    assert refusal_reason(without) == "CardWithoutQuota"
    full = refusal(("CardWithoutQuota", 1), ("InsufficientGPUMemory", 3))
    assert refusal_reason(full) == UNSCHEDULABLE
    problem = Problem("QueueQuotaInsufficient", "queue q", "its quota is used up")
    assert refusal_reason(refusal(problem=problem)) == "QueueQuotaInsufficient"
