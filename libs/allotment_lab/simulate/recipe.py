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

from allotment.core.config.report import hint
from allotment.core.units import duration_ns
from allotment_lab.workload import (
    NAMESPACE,
    SCHEDULER,
    Arrival,
    Workload,
    WorkloadError,
    shown,
)
from allotment_local.nodes.objects import node_objects
from allotment_local.nodes.shape_reader import shapes_in
from allotment_local.nodes.yaml_lines import Lines, NotYamlError, Path, load_with_lines
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import Policy
from allotment_watcher.normalise import node_fact, pod_fact
from allotment_watcher.objects import NodeObject, PodObject

HOUR_S = 3600
PODS_MAX = 2_000_000
PER_HOUR_MAX = 1_000_000
DAYS_MAX = 100_000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?")
_ROOT = ("lasts", "nodes", "pods")
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


class _Reader:
    def __init__(self, source: str, lines: Lines) -> None:
        self._source = source
        self._lines = lines
        self.problems: list[str] = []

    def recipe(self, value: Any) -> Recipe:
        root = self._mapping((), value, _ROOT)
        lasts_s = self._duration(("lasts",), root.get("lasts"))
        shapes, problems = shapes_in(root.get("nodes"), self._source, self._lines, ("nodes",))
        self.problems += problems
        nodes = tuple(
            node_fact(msgspec.convert({**body, "metadata": _named(body["metadata"])}, NodeObject))
            for body in node_objects(shapes, "")
        )
        self._refuse_broken(nodes, root.get("nodes"))
        given = root.get("pods")
        if not isinstance(given, list) or not given:
            self._wrong(("pods",), given, "a list of pods: - name: train …")
            given = []
        pods = tuple(self._pod(("pods", index), item) for index, item in enumerate(given))
        names = [shape.fact.name for shape in pods]
        for index, name in enumerate(names):
            if name in names[:index]:
                self._wrong(("pods", index, "name"), name, "a name of its own for each shape")
        expected = sum(shape.per_hour for shape in pods) * lasts_s / HOUR_S
        if expected > PODS_MAX:
            self._wrong(("lasts",), f"{expected:.0f} pods", f"at most {PODS_MAX} pods in all")
        return Recipe(lasts_s, nodes, pods)

    def _refuse_broken(self, nodes: Iterable[NodeObserved], given: Any) -> None:
        """A node in a cluster goes without an amount that cannot be used; a simulated one need
        not. Reported once for all nodes of a shape.
        """
        told: set[Path] = set()
        for node in nodes:
            prefix = node.name.rpartition("-")[0]
            for found in node.problems:
                index, item = next(
                    (index, item)
                    for index, item in enumerate(given)
                    if node.name == item.get("name") or prefix == item.get("prefix")
                )
                key = found.place.split()[-1]
                path: Path = ("nodes", index, key) if key in item else ("nodes", index)
                if path not in told:
                    wanted = f"one that can be used: {found.message}"
                    self._wrong(path, item.get(key, found.place), wanted)
                told.add(path)

    def _pod(self, path: Path, item: Any) -> PodShape:
        given = self._mapping(path, item, _POD)
        name = given.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self._wrong((*path, "name"), name, "lower case letters, digits, -")
            name = "unnamed"
        rate = given.get("per_hour")
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            rate = 0
        if not 0 < rate <= PER_HOUR_MAX:
            wanted = f"a number above 0, at most {PER_HOUR_MAX}"
            self._wrong((*path, "per_hour"), given.get("per_hour"), wanted)
            rate = 1
        is_mean = "runs_for_mean" in given
        if is_mean and "runs_for" in given:
            self._wrong((*path, "runs_for"), given["runs_for"], "runs_for or runs_for_mean")
        key = "runs_for_mean" if is_mean else "runs_for"
        runs_for_s = self._duration((*path, key), given[key]) if key in given else None
        return PodShape(self._fact(path, given, name), rate, runs_for_s, is_mean)

    def _fact(self, path: Path, given: Mapping[str, Any], name: str) -> PodObserved:
        priority = given.get("priority", 0)
        if isinstance(priority, bool) or not isinstance(priority, int):
            self._wrong((*path, "priority"), priority, "a whole number")
            priority = 0
        limits = self._texts((*path, "limits"), given.get("limits"))
        annotations = self._texts((*path, "annotations"), given.get("annotations", {}))
        body = {
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "uid": name,
                "annotations": annotations,
            },
            "spec": {
                "schedulerName": SCHEDULER,
                "priority": priority,
                "containers": [{"name": "main", "resources": {"limits": limits}}],
            },
        }
        fact = pod_fact(msgspec.convert(body, PodObject), Policy())
        if fact.problem is not None:
            found = fact.problem
            self._wrong(path, f"{found.place}: {found.message}", "a pod that can be placed")
        return msgspec.structs.replace(fact, rv=1)

    def _mapping(self, path: Path, item: Any, allowed: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(item, dict):
            self._wrong(path, item, f"a mapping with {', '.join(allowed)}")
            return {}
        for key in item:
            if key not in allowed:
                self._problem((*path, str(key)), f"is not known; {hint(str(key), allowed)}")
        return {str(key): value for key, value in item.items()}

    def _texts(self, path: Path, item: Any) -> dict[str, str]:
        if not isinstance(item, dict) or not all(
            isinstance(key, str) and isinstance(value, str | int) and not isinstance(value, bool)
            for key, value in item.items()
        ):
            self._wrong(path, item, "a mapping of names to amounts or texts")
            return {}
        return {key: str(value) for key, value in item.items()}

    def _duration(self, path: Path, value: Any) -> int:
        found = duration_ns(value, days=True) if isinstance(value, str) else None
        seconds, beyond = divmod(found or 0, 1_000_000_000)
        if beyond or not 0 < seconds <= DAYS_MAX * 24 * HOUR_S:
            wanted = f"a time like 90s, 15m, 6h or 2d, from 1s to {DAYS_MAX}d"
            self._wrong(path, value, wanted)
            return HOUR_S
        return seconds

    def _wrong(self, path: Path, value: Any, wanted: str) -> None:
        found = "is missing" if value is None else f"is {shown(value)}"
        self._problem(path, f"{found}; wanted: {wanted}")

    def _problem(self, path: Path, what: str) -> None:
        place = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in path).lstrip(".")
        line = self._lines.of(path)
        self.problems.append(f"{self._source}:{line}: {place or 'the document'} {what}")


def _named(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {**metadata, "uid": metadata["name"], "resourceVersion": "1"}
