"""The half of a script's world that tells facts: what the watcher would append to the log.

Nodes and pods with a ``kind`` or with ``asks`` are Kubernetes objects (`manifests`), read under the
policy and the device configuration in force, and read again when one of these changes. The others
are facts with the defaults of `tests.build`.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from allotment.core.devices import FAMILIES
from allotment.core.logport import Landed, Record
from allotment.core.policy import PolicyError, parse
from allotment.core.state import Allocation, ClusterState, apply_all
from allotment.testing.memory_log import MemoryLogCore
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import (
    DevicesConfigured,
    Envelope,
    Event,
    GroupGone,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
    PolicyLoaded,
    QueueGone,
    version_of,
)
from allotment_proto.facts import Holding, Policy
from allotment_proto.volcano import device_config, keys
from tests import build
from tests.golden import manifests
from tests.golden.manifests import Settings

NOW_S = 100
Lines = list[str]


def fold(records: list[Record]) -> ClusterState:
    """The state after these records."""
    state = ClusterState()
    for record in records:
        apply_all(state, decode_envelope(record.payload).events, record.seq)
    return state


class Teller:
    """The log and what is known of nodes and pods besides."""

    def __init__(self) -> None:
        self.log = MemoryLogCore()
        self.rv = 0
        self._nodes: dict[str, manifests.Node] = {}
        self._pods: dict[str, tuple[manifests.Json, int]] = {}
        """By name: the object and when it was made."""

    @property
    def state(self) -> ClusterState:
        return fold(self.log.records)

    def _append(self, subject: str, *events: Event) -> str:
        envelope = Envelope(v=version_of(events), at_ms=NOW_S * 1_000, by="script", events=events)
        msg_id = f"script/{self.log.last_seq + 1}"
        landed = self.log.try_append(subject, encode(envelope), msg_id=msg_id)
        assert isinstance(landed, Landed)
        return f"@{landed.seq}"

    def _next_rv(self) -> int:
        self.rv += 1
        return self.rv

    # Nodes

    def _node(self, names: list[str], settings: Settings) -> Lines:
        name, *flags = names
        if "kind" in settings:
            config = self.state.devices
            found = manifests.node(name, flags, settings, self._next_rv(), config)
            self._nodes[name] = found
            fact = found.read(config)
        else:
            fact = self._plain_node(name, flags, settings)
        return [
            f"{self._append(subjects.node(name), fact)} node {' '.join(names)}",
            *_node_problems(fact),
        ]

    def _plain_node(self, name: str, flags: list[str], settings: Settings) -> NodeObserved:
        cards = [
            build.card(
                index,
                id=f"{name}-{index}",
                memory_mib=int(settings.get("memory", "16000")),
                model=settings.get("model", build.MODEL),
            )
            for index in range(int(settings.get("cards", "1")))
        ]
        return build.node(name, cards, rv=self._next_rv(), unschedulable="cordoned" in flags)

    def _node_gone(self, names: list[str], settings: Settings) -> Lines:
        (name,) = names
        uid = self._nodes[name].manifest.metadata.uid if name in self._nodes else f"uid-{name}"
        self._nodes.pop(name, None)
        gone = NodeGone(name=name, uid=uid, rv=self._next_rv())
        return [f"{self._append(subjects.node(name), gone)} node {name} gone"]

    # Pods

    def _pod(self, names: list[str], settings: Settings) -> Lines:
        out = []
        for name in names:
            if "asks" in settings:
                document = manifests.pod_json(name, settings, self.state.devices)
                self._pods[name] = document, self._next_rv()
                fact = self._read_pod(name, self.rv)
            else:
                fact = self._plain_pod(name, settings)
            at = self._append(subjects.pod(name), fact)
            wrong = "" if fact.problem is None else f", but {fact.problem.place}: "
            out.append(f"{at} pod {name} waits{wrong}{fact.problem.message if wrong else ''}")
        return out

    def _plain_pod(self, name: str, settings: Settings) -> PodObserved:
        wanted = build.wants(
            int(settings.get("memory", "4000")),
            int(settings.get("cores", "0")),
            int(settings.get("count", "1")),
        )
        group = settings.get("group", "")
        return build.pod(
            name,
            build.request(wanted),
            name=name,
            rv=self._next_rv(),
            created_ms=self.rv,
            priority=int(settings.get("priority", "0")),
            scheduler=settings.get("scheduler", "allotment"),
            group=f"default/{group}" if group else "",
        )

    def _read_pod(self, name: str, rv: int) -> PodObserved:
        document, created = self._pods[name]
        document["metadata"]["resourceVersion"] = str(rv)
        state = self.state
        fact = manifests.read_pod(document, state.policy, state.devices)
        return msgspec.structs.replace(fact, created_ms=created)

    def _see(self, name: str, **changes: Any) -> str:
        """The pod is observed again: changes are fields of the fact, which an object has too."""
        rv = self._next_rv()
        if name in self._pods:
            _change(self._pods[name][0], changes)
            fact = self._read_pod(name, rv)
        else:
            known = self.state.pods[name].fact
            changes.pop("annotations", None)
            fact = msgspec.structs.replace(known, rv=rv, **changes)
        return self._append(subjects.pod(name), fact)

    def _seen(self, names: list[str], settings: Settings) -> Lines:
        """`seen POD node=N cards=CARD:MIB:CORES,…` (or its annotation, `ids=`): bound by whomever."""
        (name,), node = names, settings["node"]
        holdings = []
        for item in filter(None, settings.get("cards", "").split(",")):
            card, memory_mib, cores_pct = item.split(":")
            holdings.append(Holding("vgpu", 0, card, int(memory_mib), int(cores_pct)))
        at = self._see(
            name,
            node=node,
            holdings=tuple(holdings),
            annotations={keys.VGPU_IDS: settings["ids"]} if "ids" in settings else {},
        )
        return [f"{at} pod {name} is seen on {node}", *_broken(self.state, name)]

    def _start(self, names: list[str], settings: Settings) -> Lines:
        """The pods run where they were bound, with what was written on them."""
        out = []
        for name in names:
            held = self.state.pods[name].allocation
            if held is None:
                out.append(f"{name} has no place to start on")
                continue
            written = {**_written(held), keys.BIND_PHASE: keys.PHASE_SUCCESS}
            at = self._see(
                name,
                node=held.node,
                phase="Running",
                holdings=held.holdings,
                bind_phase=keys.PHASE_SUCCESS,
                annotations=written,
            )
            out.append(f"{at} pod {name} runs")
        return out

    def _plugin_fails(self, names: list[str], settings: Settings) -> Lines:
        """The pods are bound, but the device plugin does not start them."""
        out = []
        for name in names:
            held = self.state.pods[name].allocation
            if held is None:
                out.append(f"{name} has no place to start on")
                continue
            written = {**_written(held), keys.BIND_PHASE: keys.PHASE_FAILED}
            at = self._see(
                name,
                node=held.node,
                holdings=held.holdings,
                bind_phase=keys.PHASE_FAILED,
                annotations=written,
            )
            out.append(f"{at} pod {name} does not start: the plugin says failed")
        return out

    def _end(self, names: list[str], settings: Settings) -> Lines:
        phase = settings.get("phase", "Succeeded")
        reason = {"reason": settings["reason"]} if "reason" in settings else {}
        said = {"Succeeded": "ended"}.get(phase, f"ended: {phase}")
        return [f"{self._see(name, phase=phase, **reason)} pod {name} {said}" for name in names]

    def _leave(self, names: list[str], settings: Settings) -> Lines:
        return [f"{self._see(name, deleting=True)} pod {name} is being deleted" for name in names]

    def _pod_gone(self, names: list[str], settings: Settings) -> Lines:
        out = []
        for name in names:
            self._pods.pop(name, None)
            gone = PodGone(uid=name, namespace="default", name=name, rv=self._next_rv())
            out.append(f"{self._append(subjects.pod(name), gone)} pod {name} gone")
        return out

    # Groups, queues, priority classes

    def _group(self, names: list[str], settings: Settings) -> Lines:
        out = []
        for name in names:
            fact = manifests.group(name, settings, self._next_rv())
            fact = msgspec.structs.replace(fact, created_ms=self.rv)
            at = self._append(subjects.group("default", name), fact)
            out.append(f"{at} group {name} needs {fact.min_member} in queue {fact.queue}")
        return out

    def _group_gone(self, names: list[str], settings: Settings) -> Lines:
        (name,) = names
        gone = GroupGone(uid=name, namespace="default", name=name, rv=self._next_rv())
        return [f"{self._append(subjects.group('default', name), gone)} group {name} gone"]

    def _queue(self, names: list[str], settings: Settings) -> Lines:
        name, *flags = names
        fact = manifests.queue(name, flags, settings, self._next_rv())
        return [f"{self._append(subjects.queue(name), fact)} queue {name} {fact.state}"]

    def _queue_gone(self, names: list[str], settings: Settings) -> Lines:
        (name,) = names
        gone = QueueGone(uid=name, name=name, rv=self._next_rv())
        return [f"{self._append(subjects.queue(name), gone)} queue {name} gone"]

    def _class(self, names: list[str], settings: Settings) -> Lines:
        (name,) = names
        fact = manifests.priority_class(name, settings, self._next_rv())
        return [f"{self._append(subjects.priority_class(name), fact)} class {name} {fact.value}"]

    # Configuration

    def _policy(self, names: list[str], settings: Settings) -> Lines:
        rules = Policy(
            device_policy=settings.get("device", "binpack"),
            host_policy=settings.get("host", "none"),
        )
        event = PolicyLoaded(policy=rules, source="script", text_sha256="")
        return [f"{self._append(subjects.CONFIG, event)} policy {rules.device_policy}"]

    def _conf(self, names: list[str], settings: Settings) -> Lines:
        """The text of a volcano-scheduler.conf in one line."""
        try:
            parsed = parse(" ".join(names), "conf", Policy().scheduler_names)
        except PolicyError as error:
            return [f"refused: {problem}" for problem in error.problems]
        event = PolicyLoaded(policy=parsed.policy, source="conf", text_sha256="")
        at = self._append(subjects.CONFIG, event)
        said = [f"warning: {warning}" for warning in parsed.warnings]
        return [f"{at} configured: {', '.join(parsed.policy.actions)}", *said, *self._read_again()]

    def _devices(self, names: list[str], settings: Settings) -> Lines:
        """The text of a device-config.yaml in one line; nothing: what is built in."""
        text = " ".join(names)
        parsed = device_config.parse(text, "devices") if text else None
        if parsed is not None and parsed.config is None:
            return [f"refused: {p.place} {p.message}" for p in parsed.problems]
        config = device_config.default() if parsed is None else parsed.config
        assert config is not None
        event = DevicesConfigured(config=config, source="devices", text_sha256="")
        return [f"{self._append(subjects.CONFIG, event)} devices configured", *self._read_again()]

    def _read_again(self) -> Iterator[str]:
        """Objects that read otherwise now are told again, as they are."""
        state = self.state
        for name, found in self._nodes.items():
            fact = found.read(state.devices)
            if fact != state.nodes[name].fact:
                yield f"{self._append(subjects.node(name), fact)} node {name} reads otherwise"
                yield from _node_problems(fact)
        for name in self._pods:
            known = state.pods[name].fact
            read = self._read_pod(name, known.rv)
            if read != known:
                yield f"{self._append(subjects.pod(name), read)} pod {name} reads otherwise"


def _change(document: manifests.Json, changes: dict[str, Any]) -> None:
    """What a change of the fact is in the object: holdings and binding are in annotations."""
    if "node" in changes:
        document["spec"]["nodeName"] = changes["node"]
    for field in ("phase", "reason"):
        if field in changes:
            document["status"][field] = changes[field]
    if changes.get("deleting"):
        document["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    document["metadata"]["annotations"].update(changes.get("annotations", {}))


def _written(held: Allocation) -> dict[str, str]:
    """The annotations of a Binding."""
    families = dict.fromkeys(holding.family for holding in held.holdings)
    written = {keys.LOG_SEQ: str(held.seq)}
    for family in families:
        mine = tuple(holding for holding in held.holdings if holding.family == family)
        written |= FAMILIES[family].annotations(held.node, mine, held.stamp_s, NOW_S)
    return written


def _node_problems(fact: NodeObserved) -> Lines:
    return [f"  {problem.code}: {problem.place} {problem.message}" for problem in fact.problems]


def _broken(state: ClusterState, name: str) -> Lines:
    broken = state.pods[name].fact.broken
    return [] if broken is None else [f"  {broken.code}: {broken.place} {broken.message}"]
