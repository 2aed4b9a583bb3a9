"""Quotas by card model: whole cards, alternatives, and our rule for sliced ones."""

from typing import Any

import pytest

from allotment.core.placement.rules.card_names import Card, alternatives, discover
from allotment.core.queues.model import Phase, Share, Status, Task
from allotment.core.queues.plugins.card_claims import (
    CardsError,
    claim_of,
    read_counts,
    shares_milli,
    slice_milli,
)
from allotment.core.queues.resources import Resources
from allotment.core.queues.session import Session
from tests.unit.queues_parts import GPU, amounts, job, plugin, queue, session, task

H200 = Card("NVIDIA-H200", GPU, 143_360)
A100 = Card("NVIDIA-A100", GPU, 81_920)
VGPU = "volcano.sh/vgpu-number"
FREE = plugin("capacity-card", None, cardUnlimitedCpuMemory=True)


def cards(**counts: int) -> Resources:
    return Resources({f"NVIDIA-{name}": count * 1000 for name, count in counts.items()})


def whole(uid: str, count: int, names: str = "NVIDIA-H200", **changes: Any) -> Task:
    return task(uid, count, card_names=alternatives(names), **changes)


def sliced(uid: str, memory_mib: int, count: int = 1, **changes: Any) -> Task:
    values: dict[str, Any] = {
        "request": Resources({VGPU: count * 1000}),
        "shares": (Share(count, memory_mib),),
    }
    return task(uid, **{**values, **changes})


def asked(*members: Task, tier: Any = "capacity-card", **of_queue: Any) -> Session:
    return session(
        job("j", members),
        queues=[queue(**of_queue)],
        tiers=[[tier]],
        cards=[H200, A100],
        share_resources=[VGPU],
    )


def refusal(found: Session, number: int = 0) -> str | None:
    one = found.jobs["j"]
    no = found.allocatable(one, one.view.tasks[number])
    return None if no is None else no.code


def allowed(found: Session, number: int = 0) -> tuple[str, ...] | None:
    one = found.jobs["j"]
    return found.cards(one, one.view.tasks[number])


def test_ex_card1() -> None:
    """Alternatives at job level: quotas 5+3, used 2+1, asked 4 → 7 of 8."""
    running = job(
        "r",
        [
            whole("x", 2, status=Status.RUNNING, held_cards=cards(H200=2)),
            whole("y", 1, "NVIDIA-A100", status=Status.RUNNING, held_cards=cards(A100=1)),
        ],
        phase=Phase.RUNNING,
    )
    for count, let_in in ((4, True), (5, True), (6, False)):
        asks = job(
            "a",
            (),
            phase=Phase.PENDING,
            min_resources=Resources(),
            card_request=Resources({"NVIDIA-H200|NVIDIA-A100": count * 1000}),
        )
        found = session(
            running,
            asks,
            queues=[queue(card_quota=cards(H200=5, A100=3))],
            tiers=[["capacity-card"]],
            cards=[H200, A100],
        )
        no = found.job_enqueueable(found.jobs["a"])
        assert (no is None) == let_in


def test_ex_card2() -> None:
    """Alternatives of one pod: a single card has to have room for all of it."""
    members = [
        whole("x", 2, status=Status.RUNNING, held_cards=cards(H200=2)),
        whole("y", 1, "NVIDIA-A100", status=Status.RUNNING, held_cards=cards(A100=1)),
        whole("ask4", 4, "NVIDIA-H200|NVIDIA-A100"),
        whole("ask3", 3, "NVIDIA-H200|NVIDIA-A100"),
        whole("ask2", 2, "NVIDIA-H200|NVIDIA-A100"),
    ]
    found = asked(*members, card_quota=cards(H200=5, A100=3))
    assert refusal(found, 2) == "InsufficientScalarQuota", "6 > 5 and 5 > 3"
    assert refusal(found, 3) is None
    assert allowed(found, 3) == ("NVIDIA-H200",), "and so it may only go there"
    assert allowed(found, 4) == ("NVIDIA-H200", "NVIDIA-A100")


def test_ex_card3() -> None:
    members = [
        whole("gpu", 1, request=amounts(1, cpu=16)),
        task("cpu", request=amounts(0, cpu=1)),
    ]
    found = asked(*members, tier=FREE, card_quota=cards(H200=8))
    assert refusal(found, 0) is None
    assert refusal(found, 1) == "InsufficientCPUQuota"
    strict = asked(*members, card_quota=cards(H200=8))
    assert refusal(strict, 0) == "InsufficientCPUQuota", "without the flag CPU counts"


def test_books_skip_cpu_and_memory_too() -> None:
    members = [
        whole("gpu", 1, request=amounts(1, cpu=16)),
        task("cpu", request=amounts(0, cpu=8)),
    ]
    found = asked(*members, tier=FREE, card_quota=cards(H200=8), capability=amounts(0, cpu=8))
    one = found.jobs["j"]
    found.assume(one, members[0], Status.ALLOCATED, "NVIDIA-H200")
    assert refusal(found, 1) is None


def test_a_card_that_is_not_listed_is_zero() -> None:
    found = asked(whole("x", 1, "NVIDIA-A100"), card_quota=cards(H200=8))
    assert refusal(found) == "InsufficientScalarQuota"


def test_texts_are_raw_thousandths() -> None:
    held = whole("x", 3, status=Status.RUNNING, held_cards=cards(H200=3))
    found = asked(held, whole("y", 3), card_quota=cards(H200=5))
    no = found.allocatable(found.jobs["j"], found.jobs["j"].view.tasks[1])
    assert no is not None
    assert no.message == (
        "queue q has insufficient NVIDIA-H200 quota: requested 3000, total would be 6000, "
        "capability 5000"
    )


def test_a_queue_with_nothing_allows_nothing() -> None:
    assert refusal(asked(task("x", request=amounts(0, cpu=1)))) == "EmptyQueueCapability"
    found = asked(task("x", request=amounts(0, cpu=1)), card_quota_problem="is not JSON")
    no = found.allocatable(found.jobs["j"], found.jobs["j"].view.tasks[0])
    assert no is not None
    assert (no.code, "volcano.sh/card.quota is not JSON" in no.message) == (
        "CardQuotaUnreadable",
        True,
    )


def test_memory_and_other_scalars() -> None:
    found = asked(
        task("x", request=amounts(0, memory_gib=2)),
        task("y", request=amounts(99, memory_gib=1)),
        capability=amounts(0, memory_gib=1),
    )
    assert refusal(found, 0) == "InsufficientMemoryQuota"
    assert refusal(found, 1) is None, "other resources are unlimited"


@pytest.mark.parametrize(
    ("member", "part"),
    [
        (whole("x", 1, "NVIDIA-H999"), "no node offers NVIDIA-H999"),
        (task("x", 0, card_names=("NVIDIA-H200",)), "a request for nvidia.com/gpu"),
        (sliced("x", 200_000), "a share that no such card can give"),
    ],
)
def test_what_cannot_be_read_is_refused(member: Task, part: str) -> None:
    found = asked(member, card_quota=cards(H200=8), capability=amounts(0, cpu=9))
    no = found.allocatable(found.jobs["j"], found.jobs["j"].view.tasks[0])
    assert no is not None
    assert no.code == "GetTaskRequestResourceFailed"
    assert part in no.message


def test_a_vgpu_pod_with_unset_capability_is_denied_by_the_old_rule() -> None:
    old = plugin("capacity-card", None, allotment__shareQuota=False)
    pod = sliced("x", 8_000, request=Resources({VGPU: 1000, "cpu": 1000}))
    assert refusal(asked(pod, tier=old, card_quota=cards(H200=8))) == "InsufficientCPUQuota"
    both = plugin("capacity-card", None, allotment__shareQuota=False, cardUnlimitedCpuMemory=True)
    assert refusal(asked(pod, tier=both, card_quota=cards(H200=8))) == "InsufficientCPUQuota"
    enough = asked(pod, tier=old, card_quota=cards(), capability=amounts(0, cpu=1))
    assert refusal(enough) is None, "and it has no card quota at all"
    assert allowed(enough) is None


@pytest.mark.parametrize(
    ("share", "memory_mib", "expected"),
    [
        (Share(1, 8_192), 81_920, 100),
        (Share(1, 8_193), 81_920, 101),
        (Share(3, 0, 30), 81_920, 300),
        (Share(1), 81_920, 1000),
        (Share(1, 1_000, 0, 100), 81_920, 1000),
        (Share(1, 81_920), 81_920, 1000),
        (Share(1, 81_921), 81_920, None),
        (Share(1, 90_000, 0, 100), 81_920, None),
    ],
)
def test_a_share_counts_as_its_part_of_the_memory(
    share: Share, memory_mib: int, expected: int | None
) -> None:
    assert slice_milli(share, memory_mib) == expected


def test_shares_of_several_cards_and_containers_add_up() -> None:
    assert shares_milli([Share(2, 8_192), Share(1, 0, 50)], 81_920) == 700
    assert shares_milli([Share(2, 8_192), Share(1, 99_999)], 81_920) is None


def test_sliced_cards_fill_a_quota_of_one_card() -> None:
    members = [sliced(f"s{number}", 71_680) for number in range(3)]  # half an H200 each
    found = asked(*members, tier=FREE, card_quota=cards(H200=1))
    one = found.jobs["j"]
    checkpoints = []
    for number in range(2):
        assert refusal(found, number) is None
        checkpoints.append(found.statement.checkpoint())
        assert allowed(found, number) == ("NVIDIA-H200",), "there is no quota for the other model"
        found.assume(one, members[number], Status.ALLOCATED, "NVIDIA-H200")
    assert refusal(found, 2) == "InsufficientScalarQuota"
    found.statement.rollback(checkpoints[1])
    assert refusal(found, 2) is None


def test_an_unnamed_share_goes_where_there_is_quota() -> None:
    members = [
        sliced("held", 0, status=Status.RUNNING, held_cards=cards(A100=1)),
        sliced("free", 40_960),
        sliced("named", 40_960, card_names=("NVIDIA-A100",)),
    ]
    found = asked(*members, tier=FREE, card_quota=cards(H200=1, A100=1))
    assert allowed(found, 1) == ("NVIDIA-H200",)
    assert refusal(found, 2) == "InsufficientScalarQuota"


def test_shares_in_a_queue_without_card_quota_count_by_cpu_alone() -> None:
    found = asked(sliced("x", 8_000), capability=amounts(0, cpu=1))
    assert refusal(found) is None
    assert allowed(found) is None


def test_a_vgpu_group_is_let_in_without_cpu_quota_when_cards_lift_it() -> None:
    least = Resources({VGPU: 1000, "cpu": 4000})
    for tier, let_in in ((FREE, True), ("capacity-card", False)):
        found = session(
            job("j", (), phase=Phase.PENDING, min_resources=least),
            queues=[queue(card_quota=cards(H200=1))],
            tiers=[[tier]],
            cards=[H200],
            share_resources=[VGPU],
        )
        assert (found.job_enqueueable(found.jobs["j"]) is None) == let_in


def test_card_requests_are_checked_until_there_are_pods() -> None:
    asks = job("j", (), phase=Phase.PENDING, min_resources=Resources(), card_request=cards(H200=3))
    found = session(
        asks, queues=[queue(card_quota=cards(H200=2))], tiers=[["capacity-card"]], cards=[H200]
    )
    no = found.job_enqueueable(found.jobs["j"])
    assert no is not None
    assert no.code == "InsufficientScalarQuota"


def test_pods_that_exist_count_instead_of_the_request() -> None:
    members = [whole("x", 2, "NVIDIA-H200|NVIDIA-A100"), whole("y", 2, "NVIDIA-H200|NVIDIA-A100")]
    for quota, let_in in ((2, True), (1, False)):
        asks = job("j", members, phase=Phase.PENDING, min_resources=Resources())
        found = session(
            asks,
            queues=[queue(card_quota=cards(H200=2, A100=quota))],
            tiers=[["capacity-card"]],
            cards=[H200, A100],
        )
        assert (found.job_enqueueable(found.jobs["j"]) is None) == let_in


def test_names_of_cards() -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H200",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.replicas": "2",
        "kubernetes.io/os.product": "",
    }
    assert discover(labels, [GPU]) == (Card("NVIDIA-H200", GPU, 81_559),)
    assert [card.name for card in discover(labels, [GPU + ".shared"])] == [
        "NVIDIA-H200",
        "NVIDIA-H200/mps-80g*1/2",
    ]
    (_, mig) = discover(labels, ["cpu", "nvidia.com/mig-1g.10gb"])
    assert mig == Card("NVIDIA-H200/mig-1g.10gb-mixed", "nvidia.com/mig-1g.10gb")
    assert discover({"a.product": "x"}, [GPU]) == ()


def test_a_card_known_only_as_a_model_gives_no_whole_ones() -> None:
    claim = claim_of(whole("x", 1), {"NVIDIA-H200": Card("NVIDIA-H200", "", 1)}, counts_shares=True)
    assert claim.problem is not None


def test_reading_annotations() -> None:
    assert read_counts('{"NVIDIA-H200": 8, "B": "500m"}') == {"NVIDIA-H200": 8000, "B": 500}
    assert alternatives(" A | B|") == ("A", "B")


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"A": true}', '{"A": 1.5}', '{"A": "-1"}'])
def test_annotations_that_cannot_be_read(text: str) -> None:
    with pytest.raises(CardsError, match=r"wanted|negative"):
        read_counts(text)
