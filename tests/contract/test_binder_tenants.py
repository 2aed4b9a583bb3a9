"""Two tenants who wait for, and make room for, each other: no object of one names the other.

A tenant may read the pods, PodGroups and Events of their namespace. Everything that the binder
writes there is searched, whatever made the text.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.build import decided, node, pod, policy
from tests.contract.binder_scene import (
    BUDGETS,
    EVENTS,
    GROUPS,
    PODS,
    Cluster,
    at_work,
    cluster,
    comes_to,
    running_pod,
)

from allotment_proto.events import (
    Admission,
    Decided,
    Eviction,
    GroupObserved,
    Nomination,
    PodObserved,
    QueueObserved,
    Refusal,
    Short,
)
from allotment_proto.facts import Problem

pytestmark = pytest.mark.anyio
QUEUE = QueueObserved(uid="q", name="default", rv=1)
NAMES = policy(scheduler_names=("allotment", "volcano"))
BLUE = "team-blue-acquisition"
SECRET = "project-x"
OTHER = f"{BLUE}/{SECRET}"
NOTE = f"kept for {OTHER} until pod {OTHER}-2 is gone"


def of_blue(uid: str, name: str = SECRET) -> PodObserved:
    """A pod of the other tenant, whose objects lie on no server here: only the log knows them."""
    return pod(uid, name=name, namespace=BLUE, scheduler="volcano")


async def texts(there: Cluster) -> str:
    """Everything that tenants of namespace default may read."""
    return json.dumps([await there.api.get(path) for path in (PODS, GROUPS, EVENTS)])


async def told(there: Cluster, word: str) -> bool:
    return word in await texts(there)


@pytest.mark.parametrize("preemptor", ["pod:blue", OTHER])
async def test_a_victim_is_not_told_for_whom(tmp_path: Path, preemptor: str) -> None:
    async with cluster() as there:
        group = await there.group("low", 1, "Running")
        low = await running_pod(there, "low", group="low")
        history = (NAMES, QUEUE, node(), group, low, of_blue("blue"))
        async with at_work(tmp_path, there, *history) as scene:
            out = Eviction(low.uid, "default", "low", "n1", "preempt", preemptor)
            await scene.add(decided(evictions=(out,)))
            await comes_to(lambda: told(there, "DisruptionTarget"))
            await comes_to(lambda: told(there, "makes room for"))
            found = await texts(there)
        assert all(word not in found for word in (BLUE, SECRET))
        assert found.count("of another namespace") >= 2


async def test_a_preemptor_is_not_told_who_stays(tmp_path: Path) -> None:
    """Nor which budget protects it."""
    async with cluster() as there:
        await there.api.post("/api/v1/namespaces", {"metadata": {"name": BLUE}})
        await there.api.post(
            BUDGETS.replace("/default/", f"/{BLUE}/"),
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "secret-budget"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
            },
        )
        container = {"name": "c", "image": "i:1"}
        body = {
            "metadata": {"name": SECRET, "labels": {"app": "kept"}},
            "spec": {"schedulerName": "volcano", "nodeName": "n1", "containers": [container]},
        }
        pods = PODS.replace("/default/", f"/{BLUE}/")
        made = await there.api.post(pods, body)
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await there.api.patch(f"{pods}/{SECRET}/status", {"status": ready})
        victim = of_blue(made["metadata"]["uid"])
        victim = msgspec.structs.replace(victim, phase="Running", node="n1")
        waits = await there.pod("top")
        async with at_work(tmp_path, there, NAMES, QUEUE, node(), victim, waits) as scene:
            who = f"pod:{waits.uid}"
            nominated = decided(nominations=(Nomination(waits.uid, "default", "top", "n1", who),))
            await scene.add(nominated)
            scene.binder.gangs.landed(nominated)
            await scene.add(
                decided(evictions=(Eviction(victim.uid, BLUE, SECRET, "n1", "preempt", who),))
            )
            await comes_to(lambda: told(there, "does not make room"))
            found = await texts(there)
        assert all(word not in found for word in (BLUE, SECRET, "secret-budget"))


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (
            lambda uid, group: decided(
                refusals=(Refusal(uid, "default", "low", 1, (("HeldForGang", 1),), None, (NOTE,)),)
            ),
            "HeldForGang",
        ),
        (
            lambda uid, group: decided(
                refusals=(
                    Refusal(uid, "default", "low", 1, (), Problem("QueueFull", "queue q", NOTE)),
                )
            ),
            "QueueFull",
        ),
        (
            lambda uid, group: decided(
                shorts=(Short(group, "NotEnoughResources", f"1/1 tasks: {NOTE}", 1, 1, 0, True),)
            ),
            "another namespace",
        ),
        (
            lambda uid, group: decided(admissions=(Admission(group, "QueueFull", NOTE),)),
            "QueueFull",
        ),
    ],
    ids=["refusal", "problem", "short", "gate"],
)
async def test_a_pod_that_waits_is_not_told_for_whom(tmp_path: Path, made: Any, word: str) -> None:
    async with cluster() as there:
        group: GroupObserved = await there.group("low", 1, "Pending")
        low = await there.pod("low", "low")
        history = (NAMES, QUEUE, node(), group, low, of_blue("blue"))
        async with at_work(tmp_path, there, *history) as scene:
            event: Decided = made(low.uid, "default/low")
            await scene.add(event)
            scene.binder._landed(event, ())
            await comes_to(lambda: told(there, word))
            await comes_to(lambda: told(there, "of another namespace"))
            found = await texts(there)
        assert all(word not in found for word in (BLUE, SECRET))
