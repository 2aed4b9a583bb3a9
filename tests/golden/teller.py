"""The half of a script's world that tells facts: what the watcher would append to the log.

Nodes with a ``kind`` are Kubernetes objects (`manifests`), as pods with ``asks`` are, and are read
again when the policy or the device configuration changes. The others are facts with the defaults of
`tests.build`.
"""

from collections.abc import Iterator

import msgspec

from allotment.core.config.policy import PolicyError, parse
from allotment_proto import subjects
from allotment_proto.events import (
    DevicesConfigured,
    GroupGone,
    NodeGone,
    NodeObserved,
    PolicyLoaded,
    QueueGone,
)
from allotment_proto.facts import Policy
from allotment_proto.volcano import device_config
from tests import build
from tests.golden import manifests
from tests.golden.log import Lines
from tests.golden.manifests import Settings
from tests.golden.pods import Pods


class Teller(Pods):
    """Tells of everything."""

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, manifests.Node] = {}

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


def _node_problems(fact: NodeObserved) -> Lines:
    return [f"  {problem.code}: {problem.place} {problem.message}" for problem in fact.problems]
