"""A small YAML of node shapes and pod shapes → a workload drawn with seeded dice.

    lasts: 24h                  # how long pods arrive
    nodes:                      # as `allot up --nodes` reads them
      - prefix: a100
        count: 10
        gpus: {model: A100-SXM4-80GB, count: 8, memory_mib: 81920, slots: 10}
        cpu: 128
        memory: 1Ti
    pods:
      - name: inference
        per_hour: 30            # mean; the gaps follow the exponential law
        runs_for: 6h            # exactly so long; or runs_for_mean, under the same law
        priority: 0
        limits: {cpu: 4, memory: 16Gi, volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 20000}
        annotations: {nvidia.com/use-gputype: A100}

Limits and annotations are those of a pod's container and of the pod, and are read by the same code
that reads them in a cluster.
"""

import re
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import msgspec

from allotment.core.units import duration_ns
from allotment_lab.workload import (
    NAMESPACE,
    SCHEDULER,
    Arrival,
    Workload,
    WorkloadError,
)
from allotment_local.nodes.objects import node_objects
from allotment_local.nodes.shape_reader import shapes_in
from allotment_local.nodes.shape_values import Field, Values
from allotment_local.nodes.yaml_lines import NotYamlError, load_with_lines
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import Policy
from allotment_watcher.normalise import node_fact, pod_fact
from allotment_watcher.objects import NodeObject, PodObject

HOUR_S = 3600
PODS_MAX = 2_000_000
PER_HOUR_MAX = 1_000_000
DAYS_MAX = 100_000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?")
_ROOT = Field(())
_FIELDS = ("lasts", "nodes", "pods")
_POD = (
    "name",
    "per_hour",
    "runs_for",
    "runs_for_mean",
    "priority",
    "limits",
    "annotations",
)


class PodShape(msgspec.Struct, frozen=True):
    """Pods that are alike. `runs_for_s` None: they stay."""

    fact: PodObserved
    per_hour: float
    runs_for_s: int | None
    is_mean: bool


class Recipe(msgspec.Struct, frozen=True):
    """What a file says; every seed draws another workload from it."""

    lasts_s: int
    nodes: tuple[NodeObserved, ...]
    pods: tuple[PodShape, ...]

    def draw(self, random: Random) -> Workload:
        """The pods of one run, in order of their arrival."""
        arrivals = [arrival for shape in self.pods for arrival in self._draw(shape, random)]
        arrivals.sort(key=lambda arrival: (arrival.created_s, arrival.fact.name))
        return Workload(self.nodes, tuple(arrivals))

    def _draw(self, shape: PodShape, random: Random) -> list[Arrival]:
        arrivals: list[Arrival] = []
        at_s = random.expovariate(shape.per_hour / HOUR_S)
        while at_s < self.lasts_s:
            runs_s = None
            if shape.runs_for_s is not None:
                mean_s = shape.runs_for_s
                runs_s = round(random.expovariate(1 / mean_s)) if shape.is_mean else mean_s
            arrival = Arrival(shape.fact, int(at_s), runs_s=runs_s)
            arrivals.append(arrival.renamed(f"-{len(arrivals) + 1}"))
            at_s += random.expovariate(shape.per_hour / HOUR_S)
        return arrivals


def parse_recipe(text: str, source: str) -> Recipe:
    """Raises `WorkloadError` with every mistake: line, place, value, and what would be right."""
    try:
        value, lines = load_with_lines(text)
    except NotYamlError as error:
        raise WorkloadError([f"{source}{error}"]) from error
    reader = _Reader(source, lines)
    recipe = reader.recipe(value)
    if reader.problems:
        raise WorkloadError(reader.problems)
    return recipe


class _Reader(Values):
    def recipe(self, value: Any) -> Recipe:
        root = self.mapping(_ROOT, value, _FIELDS) or {}
        lasts_s = self._duration(_ROOT / "lasts", root.get("lasts"))
        shapes = shapes_in(self, root.get("nodes"), _ROOT / "nodes")
        nodes = tuple(
            node_fact(msgspec.convert({**body, "metadata": _named(body["metadata"])}, NodeObject))
            for body in node_objects(shapes, "")
        )
        self._refuse_broken(nodes, root.get("nodes"))
        given, field = root.get("pods"), _ROOT / "pods"
        if not isinstance(given, list) or not given:
            self.wrong(field, given, "a list of pods: - name: train …")
            given = []
        pods = tuple(self._pod(field / index, item) for index, item in enumerate(given))
        names = [shape.fact.name for shape in pods]
        for index, name in enumerate(names):
            if name in names[:index]:
                self.wrong(field / index / "name", name, "a name of its own for each shape")
        expected = sum(shape.per_hour for shape in pods) * lasts_s / HOUR_S
        if expected > PODS_MAX:
            self.wrong(_ROOT / "lasts", f"{expected:.0f} pods", f"at most {PODS_MAX} pods in all")
        return Recipe(lasts_s, nodes, pods)

    def _refuse_broken(self, nodes: Iterable[NodeObserved], given: Any) -> None:
        """A node in a cluster goes without an amount that cannot be used; a simulated one need
        not. Reported once for all nodes of a shape.
        """
        told: set[Field] = set()
        for node in nodes:
            prefix = node.name.rpartition("-")[0]
            for found in node.problems:
                index, item = next(
                    (index, item)
                    for index, item in enumerate(given)
                    if node.name == item.get("name") or prefix == item.get("prefix")
                )
                key = found.place.split()[-1]
                field = _ROOT / "nodes" / index
                field = field / key if key in item else field
                if field not in told:
                    wanted = f"one that can be used: {found.message}"
                    self.wrong(field, item.get(key, found.place), wanted)
                told.add(field)

    def _pod(self, field: Field, item: Any) -> PodShape:
        given = self.mapping(field, item, _POD) or {}
        name = self.text(field, given, "name", _NAME.fullmatch, "lower case letters, digits, -")
        rate = given.get("per_hour")
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            rate = 0
        if not 0 < rate <= PER_HOUR_MAX:
            wanted = f"a number above 0, at most {PER_HOUR_MAX}"
            self.wrong(field / "per_hour", given.get("per_hour"), wanted)
            rate = 1
        is_mean = "runs_for_mean" in given
        if is_mean and "runs_for" in given:
            self.wrong(field / "runs_for", given["runs_for"], "runs_for or runs_for_mean")
        key = "runs_for_mean" if is_mean else "runs_for"
        runs_for_s = self._duration(field / key, given[key]) if key in given else None
        return PodShape(self._fact(field, given, name or "unnamed"), rate, runs_for_s, is_mean)

    def _fact(self, field: Field, given: Mapping[str, Any], name: str) -> PodObserved:
        priority = given.get("priority", 0)
        if isinstance(priority, bool) or not isinstance(priority, int):
            self.wrong(field / "priority", priority, "a whole number")
            priority = 0
        limits = self._texts(field / "limits", given.get("limits"))
        annotations = self._texts(field / "annotations", given.get("annotations", {}))
        metadata = {"name": name, "namespace": NAMESPACE, "uid": name, "annotations": annotations}
        body = {
            "metadata": metadata,
            "spec": {
                "schedulerName": SCHEDULER,
                "priority": priority,
                "containers": [{"name": "main", "resources": {"limits": limits}}],
            },
        }
        fact = pod_fact(msgspec.convert(body, PodObject), Policy())
        if fact.problem is not None:
            found = fact.problem
            self.wrong(field, f"{found.place}: {found.message}", "a pod that can be placed")
        return msgspec.structs.replace(fact, rv=1)

    def _texts(self, field: Field, item: Any) -> dict[str, str]:
        if not isinstance(item, dict) or not all(
            isinstance(key, str) and isinstance(value, str | int) and not isinstance(value, bool)
            for key, value in item.items()
        ):
            self.wrong(field, item, "a mapping of names to amounts or texts")
            return {}
        return {key: str(value) for key, value in item.items()}

    def _duration(self, field: Field, value: Any) -> int:
        found = duration_ns(value, days=True) if isinstance(value, str) else None
        seconds, beyond = divmod(found or 0, 1_000_000_000)
        if beyond or not 0 < seconds <= DAYS_MAX * 24 * HOUR_S:
            self.wrong(field, value, f"a time like 90s, 15m, 6h or 2d, from 1s to {DAYS_MAX}d")
            return HOUR_S
        return seconds


def _named(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {**metadata, "uid": metadata["name"], "resourceVersion": "1"}
