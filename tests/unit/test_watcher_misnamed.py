"""Which annotations of a pod are recorded as probably meant for one that is read."""

from collections.abc import Iterable

import pytest

from allotment.core.placement.unserved import nearest
from allotment_proto.facts import Policy
from allotment_watcher.normalise.lens import Lens
from allotment_watcher.normalise.misnamed import (
    COMPARED_MAX,
    MISNAMED_MAX,
    READ,
    misnamed,
)
from tests.unit.kube_json import annotated, container, pod_json, seen

USE, MODE = "volcano.sh/vgpu-use-gpuuuid", "volcano.sh/vgpu-mode"


def misnamed_of(keys: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """What is found among annotations with these keys."""
    return misnamed(dict.fromkeys(keys, "1"), {}, Lens(Policy()))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("nvidia.com/use-gpuuuid", USE),
        ("nvidia.com/nouse-gpuuuid", "volcano.sh/vgpu-nouse-gpuuuid"),
        ("nvidia.com/vgpu-mode", MODE),
        ("volcano.sh/vgpu-mod", MODE),
        ("volcano.sh/VGPU-Mode", MODE),
        ("vulcano.sh/vgpu-mode", MODE),
        ("volcano.sh/use-gputype", "nvidia.com/use-gputype"),
        ("nvidia.com/use-gpu-type", "nvidia.com/use-gputype"),
        ("scheduling.volcano.sh/queuename", "scheduling.volcano.sh/queue-name"),
        ("scheduling.k8s.io/groupname", "scheduling.k8s.io/group-name"),
    ],
)
def test_a_key_that_was_meant_for_another(key: str, meant: str) -> None:
    assert misnamed_of([key]) == ((key, meant),)


@pytest.mark.parametrize(
    "key",
    [
        *sorted(READ),
        "volcano.sh/devices-to-allocate",
        "volcano.sh/vgpu-ids-new",
        "volcano.sh/bind-phase",
        "volcano.sh/job-name",
        "volcano.sh/queue-name",
        "volcano.sh/template-uid",
        "scheduling.volcano.sh/group-name",
        "kueue.x-k8s.io/queue-name",
        "hami.io/vgpu-node",
        "hami.io/vgpu-time",
        "huawei.com/Ascend310P",
        "huawei.com/AscendReal",
        "kubectl.kubernetes.io/last-applied-configuration",
        "prometheus.io/scrape",
        "allotment.dev/log-seq",
        "allotment.dev/traceparent",
        "volcano.sh/" + "x" * 300,
        "",
        "/",
        "a",
    ],
)
def test_a_key_that_is_what_it_is(key: str) -> None:
    assert misnamed_of([key]) == ()


def test_a_record_has_room_for_a_few() -> None:
    many = [f"volcano.sh/vgpu-mode{'x' * n}" for n in range(1, 4)]
    many += [f"x{n}.sh/vgpu-mode" for n in range(20)]
    assert len(misnamed_of(many)) == MISNAMED_MAX


class Compared:
    """Counts the names that are compared letter by letter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        monkeypatch.setattr("allotment_watcher.normalise.misnamed.nearest", self)

    def __call__(self, name: str, names: set[str]) -> str:
        self.names.append(name)
        return nearest(name, names)


def test_thousands_of_unknown_keys_cost_a_few_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's annotations hold 256 KiB, and every change of the pod has them read again."""
    compared = Compared(monkeypatch)
    hostile = [f"volcano.sh/zq{n:05}-hostile" for n in range(8_165)]
    misnamed_of(hostile)
    misnamed_of(reversed(hostile))
    assert len(set(compared.names)) <= COMPARED_MAX
    assert len(compared.names) <= 2 * COMPARED_MAX


def test_what_is_found_does_not_depend_on_the_order_of_keys() -> None:
    many = [f"volcano.sh/wq{n:05}-other" for n in range(200)]
    mixed = [*many, "volcano.sh/a-vgpu-mode", "nvidia.com/use-gpuuuid", "x.sh/vgpu-mode"]
    found = misnamed_of(mixed)
    assert found == misnamed_of(reversed(mixed))
    assert [key for key, _ in found] == [
        "nvidia.com/use-gpuuuid",
        "volcano.sh/a-vgpu-mode",
        "x.sh/vgpu-mode",
    ]


def test_nothing_is_compared_once_a_record_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Compared(monkeypatch)
    full = [f"a{n}.sh/vgpu-mode" for n in range(MISNAMED_MAX)]
    assert len(misnamed_of([*full, "volcano.sh/never-compared"])) == MISNAMED_MAX
    assert compared.names == []


def test_a_very_long_name_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Compared(monkeypatch)
    assert misnamed_of(["volcano.sh/" + "vgpu-mode" * 6]) == ()
    assert compared.names == []


def test_the_watcher_tells_it_of_pods_of_ours_until_they_end() -> None:
    wrong = {"nvidia.com/use-gpuuuid": "GPU-1"}
    assert annotated(wrong).misnamed == (("nvidia.com/use-gpuuuid", USE),)
    others = pod_json(container(), annotations=wrong, schedulerName="default-scheduler")
    assert seen(others).misnamed == ()
    ended = pod_json(container(), annotations=wrong)
    assert seen({**ended, "status": {"phase": "Succeeded"}}).misnamed == ()


def test_a_pod_of_another_scheduler_says_that_it_asks_for_cards() -> None:
    limits = {"volcano.sh/vgpu-number": "1", "cpu": "1", "nvidia.com/gpu": "1"}
    asks = seen(pod_json(container(limits=limits), schedulerName="default-scheduler"))
    assert asks.card_resources == ("volcano.sh/vgpu-number",)
    assert seen(pod_json(container(limits=limits))).card_resources == ()


def test_labels_of_other_schedulers_are_told_too() -> None:
    labels = {"kai.scheduler/queue": "q", "app": "x", "nvidia.com/use-gpuuuid": "GPU-1"}
    meant = (("kai.scheduler/queue", "scheduling.volcano.sh/queue-name"),)
    assert misnamed({}, labels, Lens(Policy())) == meant
