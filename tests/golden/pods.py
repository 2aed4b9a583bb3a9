"""The pods of a script's world: what users write, what is seen of them, how they end.

Pods with ``asks`` are Kubernetes objects (`manifests`), read under the policy and the device
configuration in force. The others are facts with the defaults of `tests.build`.
"""

from typing import Any

import msgspec

from allotment.core.ledger.model import Allocation, ClusterState
from allotment.core.placement.devices import FAMILIES
from allotment_proto import subjects
from allotment_proto.events import PodGone, PodObserved
from allotment_proto.facts import Holding
from allotment_proto.volcano import keys
from tests import build
from tests.golden import manifests
from tests.golden.log import NOW_S, Lines, Log
from tests.golden.manifests import Settings


class Pods(Log):
    """Tells of pods."""

    def __init__(self) -> None:
        super().__init__()
        self._pods: dict[str, tuple[manifests.Json, int]] = {}
        """By name: the object and when it was made."""

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
            wrong = fact.problem
            end = "" if wrong is None else f", but {wrong.place}: {wrong.message}"
            out.append(f"{at} pod {name} waits{end}")
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
            priority_class=self._class_of(group),
            preempts=settings.get("preemption") != "Never",
        )

    def _class_of(self, group: str) -> str:
        """The PriorityClass of a pod's group: a Job's pods have the Job's, as its PodGroup has."""
        known = self.state.groups.get(f"default/{group}")
        return "" if known is None or known.fact is None else known.fact.priority_class

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
        """`seen POD node=N cards=CARD:MIB:CORES,…` (or `ids=`, its annotation): it is bound."""
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
            written = {
                **_written(held),
                keys.BIND_PHASE: keys.PHASE_SUCCESS,
                keys.DEVICES_TO_ALLOCATE: "",
            }
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
            written = {
                **_written(held),
                keys.BIND_PHASE: keys.PHASE_FAILED,
                keys.VGPU_TIME: keys.VGPU_TIME_DONE,
            }
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


def _broken(state: ClusterState, name: str) -> Lines:
    broken = state.pods[name].fact.broken
    return [] if broken is None else [f"  {broken.code}: {broken.place} {broken.message}"]
