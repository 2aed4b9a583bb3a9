"""Nodes in groups, queues that may use some of them, and what is said of a pod."""

from typing import Any

from allotment.core.explain.history.pod_story import PodStory
from allotment.core.explain.pod import explain
from allotment.core.explain.rows.schema import Explanation
from allotment_proto.events import Envelope, QueueObserved
from tests import build
from tests.unit.rounds_world import World, group

LABEL = "volcano.sh/nodegroup-name"


def in_group(name: str, label: str = "", cards: int = 2, **labels: str) -> Any:
    found = {**({LABEL: label} if label else {}), **labels}
    return build.node(name, cards, labels=tuple(sorted(found.items())))


def tell_queue(world: World, name: str, *groups: tuple[str, ...], **changes: Any) -> None:
    """`groups`: required, preferred, anti-required, anti-preferred."""
    known = (*groups, *[()] * (4 - len(groups))) if groups else None
    world.tell(QueueObserved(uid=f"uid-{name}", name=name, rv=9, node_groups=known, **changes))


def job(world: World, name: str, pods: int, queue: str, **changes: Any) -> list[str]:
    world.tell(group(name, 1, queue=queue, **changes))
    return world.pods(name, pods)


def explained(world: World, uid: str) -> Explanation:
    story = PodStory("default", uid)
    seen = Envelope(v=1, at_ms=0, by="test", events=(world.state.pods[uid].fact,))
    story.follow(world.state.seq, 0, seen, lambda: world.state)
    return explain(world.state, story, 0, node="n1")
