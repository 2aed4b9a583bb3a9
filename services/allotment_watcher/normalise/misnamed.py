"""Annotations of a pod that nobody reads although somebody meant something by them.

A key that is spelt otherwise than ours is no error to Kubernetes: the pod starts as if nothing had
been asked. So keys that are almost one that is read are recorded, each with the one that was
probably meant: another scheduler's word for the same, the right name in another domain, or a name
in one of our domains with a letter wrong.
"""

from collections.abc import Iterable
from functools import lru_cache

from allotment.core.jobs import keys as job_keys
from allotment.core.placement.unserved import nearest
from allotment.core.queues.plugins import task_topology
from allotment_proto.volcano import keys, selection
from allotment_watcher.normalise.devices import ASKED
from allotment_watcher.normalise.membership import CARD_NAME, TASK_PRIORITY

MISNAMED_MAX = 8
KEY_CHARS_MAX = 128
REMEMBERED = 4096
READ = frozenset(
    (
        *ASKED,
        *selection.KEYS,
        keys.PODGROUP_POLICY,
        job_keys.GROUP_NAME,
        job_keys.GROUP_MIN_MEMBER,
        job_keys.POD_QUEUE,
        job_keys.PREEMPTABLE,
        job_keys.TASK_SPEC,
        TASK_PRIORITY,
        CARD_NAME,
        task_topology.AFFINITY,
        task_topology.ANTI_AFFINITY,
        task_topology.TASK_ORDER,
    )
)
"""What users write on a pod, and somebody reads."""
_KNOWN = frozenset(
    (
        *READ,
        *(value for value in vars(keys).values() if isinstance(value, str)),
        *(value for value in vars(job_keys).values() if isinstance(value, str)),
        *job_keys.INHERITED,
    )
)
"""Keys that are what they are: also those that machines write, or that Volcano reads elsewhere."""
_DOMAINS = frozenset(key.partition("/")[0] for key in READ)
_OF_CARDS = ("gpu", "npu")
"""In names that no other domain would have by chance."""


def misnamed(annotations: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The keys that nobody reads and that were meant for one that is read, each with that one."""
    found = ((key, _meant(key)) for key in sorted(annotations) if key not in READ)
    return tuple((key, meant) for key, meant in found if meant)[:MISNAMED_MAX]


@lru_cache(maxsize=REMEMBERED)
def _meant(key: str) -> str:
    if key in selection.OTHER_NAMES:
        return selection.OTHER_NAMES[key]
    if key in _KNOWN or len(key) > KEY_CHARS_MAX:
        return ""
    domain, _, name = key.partition("/")
    names = {read.partition("/")[2]: read for read in READ}
    if name in names and any(word in name for word in _OF_CARDS):
        return names[name]
    if domain not in _DOMAINS:
        return ""
    here = {read.partition("/")[2] for read in READ if read.startswith(f"{domain}/")}
    near = nearest(name, here)
    return names[near] if near else ""
