"""A pod's annotations that are ignored because their keys are misspelt or foreign.

A key that is spelt otherwise than ours is no error to Kubernetes: the pod starts as if nothing had
been asked. So keys that are almost one that is read are recorded, each with the one that was
probably meant: another scheduler's word for the same, the right name in another domain, or a name
in one of our domains with a letter wrong.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice

from allotment.core.jobs import keys as job_keys
from allotment.core.placement.devices.foreign import ANNOTATIONS, meant_by
from allotment.core.placement.unserved import nearest
from allotment.core.queues.plugins import task_topology
from allotment_proto.volcano import keys, selection
from allotment_watcher.normalise.devices import ASKED
from allotment_watcher.normalise.lens import Lens
from allotment_watcher.normalise.membership import CARD_NAME, TASK_PRIORITY

MISNAMED_MAX = 8
KEY_CHARS_MAX = 128
NAME_CHARS_MAX = 40
"""Longer names are compared with none: the longest that is read is much shorter."""
COMPARED_MAX = 64
"""So many names of one pod are compared letter by letter, the first in order: who writes a pod
writes thousands of keys as easily, and the watcher reads them again with every change."""
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
"""The annotations that users write on a pod and that a service reads."""
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


_NAMED = {key.partition("/")[2]: key for key in sorted(READ)}
_NAMED_OF_CARDS = {
    name: key for name, key in _NAMED.items() if any(word in name for word in _OF_CARDS)
}
_NAMES_IN = {
    domain: {key.partition("/")[2] for key in READ if key.startswith(f"{domain}/")}
    for domain in _DOMAINS
}


def misnamed(
    annotations: Mapping[str, str], labels: Mapping[str, str], lens: Lens
) -> tuple[tuple[str, str], ...]:
    """The ignored keys that were meant for one that is read, each with that one, or
    with the limits that say as much: the first few in order."""
    families, config = lens.policy.families, lens.config
    of_labels = (
        (key, meant_by(key, labels[key], families, config))
        for key in sorted(ANNOTATIONS.keys() & labels.keys())
        if ANNOTATIONS[key].is_label
    )
    return tuple(islice(chain(_found(annotations, lens), of_labels), MISNAMED_MAX))


def _found(annotations: Mapping[str, str], lens: Lens) -> Iterator[tuple[str, str]]:
    compared = 0
    for key in sorted(annotations):
        if key in ANNOTATIONS and not ANNOTATIONS[key].is_label:
            yield key, meant_by(key, annotations[key], lens.policy.families, lens.config)
            continue
        if key in _KNOWN or len(key) > KEY_CHARS_MAX:
            continue
        domain, _, name = key.partition("/")
        if name in _NAMED_OF_CARDS:
            yield key, _NAMED_OF_CARDS[name]
        elif domain in _DOMAINS and len(name) <= NAME_CHARS_MAX and compared < COMPARED_MAX:
            compared += 1
            if meant := _alike(domain, name):
                yield key, meant


@lru_cache(maxsize=REMEMBERED)
def _alike(domain: str, name: str) -> str:
    """The key of a domain that is read and has a name like this one; empty if there is none."""
    near = nearest(name, _NAMES_IN[domain])
    return _NAMED[near] if near else ""
