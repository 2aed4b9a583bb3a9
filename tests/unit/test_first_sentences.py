"""What a pod says while it waits for its volumes: at least the facts that kube-scheduler states.

The other situations are in `tests/scenarios/first_sentences.yaml`.
"""

from typing import Any

import pytest

from allotment.core.explain.causes.why import Whys
from allotment.core.reasons import refusal_text
from allotment_binder.causes import told
from allotment_binder.notices import Refused
from allotment_binder.readers import Readers
from allotment_proto import subjects
from allotment_proto.facts import (
    Attachment,
    Company,
    Constraints,
    Expression,
    NodeTerm,
    PodRequest,
    Problem,
)
from tests import build
from tests.recording import uid_of
from tests.recording_batch import POLICY, BatchRecorder

ZONE = "topology.kubernetes.io/zone"
IN_B = ((NodeTerm((Expression(ZONE, "In", ("b",)),)),),)
MISSING = Problem(
    "VolumeNotReady", "PersistentVolumeClaim default/data", "does not exist; create it"
)


def ask(**changes: Any) -> PodRequest:
    return build.request(build.wants(4_000, 25), **changes)


SOLE = ask(company=Company(sole=("default/data",)))
SITUATIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "3 node(s) had volume node affinity conflict": (
        {"request": ask(constraints=Constraints(volumes=IN_B))},
        ("volume", ZONE, " b", "3 VolumeOutOfReach"),
    ),
    "3 node(s) exceed max volume count": (
        {"request": ask(attachments=(Attachment("ebs.csi.aws.com", "default/data"),))},
        ("ebs.csi.aws.com", "VolumeLimitReached"),
    ),
    'persistentvolumeclaim "data" not found': (
        {"request": ask(), "problem": MISSING},
        ("PersistentVolumeClaim default/data", "does not exist"),
    ),
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod": (
        {"request": SOLE},
        ("default/data", "pod owner", "3 ClaimInUse"),
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_a_pod_says_holds_the_facts_of_others(situation: str) -> None:
    fields, facts = SITUATIONS[situation]
    log = BatchRecorder()
    log.policy(POLICY)
    log.queue("default")
    full = (("ebs.csi.aws.com", 0),)
    for name, cards in (("gpu-01", 2), ("gpu-02", 2), ("cpu-01", 0)):
        labels = ((ZONE, "a"),) if name == "gpu-01" else ()
        node = build.node(name, cards, labels=labels, uid=uid_of(name), volume_limits=full)
        log.append(subjects.node(name), "watcher/0", node)
    owner = log.pod("owner", SOLE, scheduler="volcano")
    log.round()
    log.bind(owner)
    uid = log.pod("p", scheduler="volcano", **fields)
    log.round()
    refusal = log.state.pods[uid].refusal
    assert refusal is not None
    notice = Refused(uid, "default", "p", refusal_text(refusal), is_news=True)
    text = told(log.state, Whys(log.state), notice, Readers())
    for fact in facts:
        assert fact in text, text
