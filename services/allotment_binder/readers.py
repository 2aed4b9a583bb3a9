"""What a tenant may read: texts on pods and PodGroups name workloads of their own namespace only.

The log names everybody, and so do `allot explain` and the inspector, whose readers may read the
log. A condition or an Event is read by everyone who may read the pod. So everything that the
binder writes there passes through `Readers.text`.
"""

import re

from allotment.adapters.telemetry.log import printable
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment_proto.events import Envelope, GroupObserved, PodObserved

_NAMED = re.compile(
    r"(?:\b(pod|PodGroup|group|gang|Job|job) )?"
    r"(?<![\w./-])(?!\d+/\d+ nodes )([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)/"
    r"(?:[^\s,;()]*[^\s,;().:…'\"])?"
)
"""``<namespace>/<name>``, with the kind before it if it is said. To the end of the word, whatever
stands there: annotations give groups any name, and a text may be cut in the middle of one."""


class Readers:
    """Knows the namespaces that the log has named. Feed it every record."""

    def __init__(self) -> None:
        self._namespaces: set[str] = set()

    def begin(self, state: ClusterState) -> None:
        """Take in what was before the records that are fed."""
        self._namespaces.update(pod.fact.namespace for pod in state.pods.values())
        self._namespaces.update(key.partition("/")[0] for key in state.groups)

    def on_record(self, _: Record, envelope: Envelope) -> None:
        """Called with every record that is read."""
        for event in envelope.events:
            if isinstance(event, PodObserved | GroupObserved):
                self._namespaces.add(event.namespace)

    def text(self, namespace: str, text: str) -> str:
        """A text as the tenants of a namespace may read it: without names of other namespaces, and
        without characters that no terminal prints as themselves.
        """

        def named(match: re.Match[str]) -> str:
            whose = match[2]
            if whose == namespace or whose not in self._namespaces:
                return match[0]
            return f"a {match[1] or 'workload'} of another namespace"

        return printable(_NAMED.sub(named, text))
