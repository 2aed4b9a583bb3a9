"""Manifests that are not in the cluster → the facts that the watcher would append about their pods.

Pods are read by the watcher's own reading, Volcano's Jobs are made into pods and a PodGroup by the
controller's. Of what others make pods from (Deployments and the like) the template is taken, as
often as it is asked for.
"""

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from allotment.answers.surroundings import Surroundings
from allotment.core.errors import AllotError
from allotment.core.jobs import groups, keys
from allotment.core.jobs import pods as job_pods
from allotment.core.jobs.admission import defaulted, problems_of
from allotment.core.jobs.model import Job, Meta
from allotment.core.ledger.model import ClusterState
from allotment_proto.events import Event
from allotment_watcher import objects
from allotment_watcher.batch_objects import GroupObject
from allotment_watcher.normalise import Lens, pod_through
from allotment_watcher.normalise.batch import group_fact
from allotment_watcher.normalise.volumes import NOTHING, claims_of

Document = dict[str, Any]
Placed = tuple[str, Document]
"""A manifest, and where it is written."""
STDIN = "-"
TOO_DEEP = "is nested too deeply, or refers to itself"
PODS_MAX = 1000
"""More pods than anybody asks about at once: mistyped replicas must not take for ever."""
TEMPLATES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "Deployment": (("spec",), "replicas"),
    "ReplicaSet": (("spec",), "replicas"),
    "StatefulSet": (("spec",), "replicas"),
    "ReplicationController": (("spec",), "replicas"),
    "Job": (("spec",), "parallelism"),
    "CronJob": (("spec", "jobTemplate", "spec"), "parallelism"),
}
"""By kind: where the template is, and which field next to it gives the number of pods."""
WITHOUT_NUMBER = {"DaemonSet": (("spec",), "")}


class Made(NamedTuple):
    """What would be in the log if the manifests were applied."""

    events: tuple[Event, ...]
    uids: tuple[str, ...]
    """The pods, in the order of the manifests."""
    skipped: tuple[str, ...]
    """What is no pod and makes none."""


def documents_of(given: Sequence[str | Document], namespace: str) -> list[Placed]:
    """Manifests, and those of files (``-`` is stdin), each with its namespace, or this one. Raises
    `AllotError` naming file and document.
    """
    found = [placed for one in given for placed in _documents(one)]
    for place, document in found:
        with _said_of(place):
            metadata = _part(document, "metadata")
            metadata["namespace"] = metadata.get("namespace") or namespace
            _json(document)  # so that what is nested without end has its place said here
    return found


def read(documents: Sequence[Placed], state: ClusterState, around: Surroundings) -> Made:
    """Make pods of manifests under the policy and devices of a state, in these surroundings. Raises
    `AllotError` naming file and document.
    """
    reader = _Reader(state, around)
    left = []
    for place, document in documents:
        with _said_of(place):
            if not around.take(document):
                left.append((place, document))
    for place, document in left:
        with _said_of(place):
            reader.take(document)
    if len(reader.uids) > PODS_MAX:
        raise AllotError(
            f"the manifests make {len(reader.uids):,} pods", f"ask about at most {PODS_MAX:,}"
        )
    return Made(tuple(reader.events), tuple(reader.uids), tuple(reader.skipped))


@contextmanager
def _said_of(place: str) -> Iterator[None]:
    """Mistakes of a document as a `AllotError` that names its place."""
    try:
        yield
    except RecursionError as error:
        raise AllotError(f"{place} {TOO_DEEP}") from error
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise AllotError(f"{place}: {error}") from error


def _documents(path: str | Document) -> Iterator[Placed]:
    if not isinstance(path, str):
        name = "the manifest"
        yield name, _manifest(copy.deepcopy(path), name)
        return
    name = "stdin" if path == STDIN else path
    try:
        text = sys.stdin.read() if path == STDIN else Path(path).read_text(encoding="utf-8")
        found = list(yaml.safe_load_all(text))
    except OSError as error:
        raise AllotError(f"{name} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AllotError(f"{name} is no YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise AllotError(f"{name} {TOO_DEEP}") from error
    for number, document in enumerate(found, 1):
        place = f"{name}, document {number}" if len(found) > 1 else name
        if document is None:
            continue
        items = document.get("items") if isinstance(document, dict) else None
        if isinstance(items, list) and document.get("kind") == "List":
            for item in items:
                yield place, _manifest(item, f"{place}, an item")
        else:
            yield place, _manifest(document, place)


def _manifest(document: object, place: str) -> Document:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise AllotError(f"{place} is no manifest", "a manifest has apiVersion, kind and metadata")
    return document


def _part(holder: Document, name: str) -> Document:
    """An object inside another one; an empty one where there is none. Raises ValueError."""
    found = holder.get(name)
    if found is None:
        found = holder[name] = {}
    if not isinstance(found, dict):
        raise ValueError(f"{name} is {type(found).__name__}; it is an object with fields")
    return found


def _objects(holder: Document, name: str) -> list[Document]:
    """A list of objects inside another one; empty where there is none. Raises ValueError."""
    found = holder.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError(f"{name} is no list of objects")
    return found


class _Reader:
    """Makes the events of one document after the other."""

    def __init__(self, state: ClusterState, around: Surroundings) -> None:
        self.events: list[Event] = []
        self.uids: list[str] = []
        self.skipped: list[str] = []
        self._state = state
        self._around = around
        self._lens = Lens(state.policy, state.devices)
        self._classes = {name: fact.value for name, fact in state.classes.items()}

    def take(self, document: Document) -> None:
        kind, version = document["kind"], str(document.get("apiVersion", ""))
        metadata = document["metadata"]
        if kind == "Pod":
            self._pod(document)
        elif kind == "Job" and version == keys.BATCH:
            self._job(document)
        elif kind == "PodGroup":
            self._group(document)
        elif kind in TEMPLATES or kind in WITHOUT_NUMBER:
            self._template(document)
        else:
            self.skipped.append(f"{kind} {metadata.get('name', '')}".rstrip())

    def _pod(self, document: Document, owner: Meta | None = None) -> None:
        metadata = document["metadata"]
        metadata["uid"] = f"fit-{len(self.uids) + 1}"
        spec = _part(document, "spec")
        spec.pop("nodeName", None)
        value = self._classes.get(spec.get("priorityClassName") or "")
        if value is not None and spec.get("priority") is None:
            spec["priority"] = value
        pod = msgspec.json.decode(_json(document), type=objects.PodObject)
        space, around = pod.metadata.namespace, self._around
        for volume in _objects(spec, "volumes"):
            if volume.get("ephemeral"):
                template = _part(volume["ephemeral"], "volumeClaimTemplate")
                claim = f"{pod.metadata.name}-{volume.get('name')}"
                around.make_claim(space, claim, template.get("spec"))
        claims = claims_of(pod)
        wanted = around.wanted(space, claims) if claims else NOTHING
        of_namespace = around.queue_of(space, pod.metadata.annotations or {})
        fact = pod_through(self._lens, pod, wanted, of_namespace)
        made = groups.name_for_pod(_meta(metadata))
        if fact.queue and fact.group == f"{fact.namespace}/{made}":
            self._group(groups.for_pod(_meta(metadata), spec, owner, of_namespace))
        self.events.append(fact)
        self.uids.append(fact.uid)

    def _group(self, document: Document) -> None:
        metadata = document["metadata"]
        metadata.setdefault("uid", f"fit-group-{metadata.get('name', '')}")
        self.events.append(group_fact(msgspec.json.decode(_json(document), type=GroupObject)))

    def _template(self, document: Document) -> None:
        path, field = {**TEMPLATES, **WITHOUT_NUMBER}[document["kind"]]
        holder = document
        for part in path:
            holder = _part(holder, part)
        template, owner = _part(holder, "template"), document["metadata"]
        number = holder.get(field, 1) if field else 1
        if not isinstance(number, int):
            raise ValueError(f"{field} is {number!r}; it is a whole number")
        owner = {**owner, "uid": f"fit-{document['kind']}-{owner.get('name', '')}"}
        reference = {
            "apiVersion": document.get("apiVersion", ""),
            "kind": document["kind"],
            "name": owner.get("name", ""),
            "uid": owner["uid"],
            "controller": True,
        }
        for index in range(min(number, PODS_MAX + 1)):
            metadata = {
                **_part(template, "metadata"),
                "name": f"{owner.get('name', '')}-{index}",
                "namespace": owner["namespace"],
                "ownerReferences": [reference],
            }
            spec = dict(_part(template, "spec"))
            if templates := _objects(holder, "volumeClaimTemplates"):
                spec["volumes"] = [
                    *_objects(spec, "volumes"),
                    *self._claimed(templates, metadata),
                ]
            self._pod({"metadata": metadata, "spec": spec}, _meta(owner))

    def _claimed(self, templates: Sequence[Document], pod: Document) -> Iterator[Document]:
        """The volumes that a StatefulSet's claims are for one of its pods."""
        for template in templates:
            name = _part(template, "metadata").get("name", "")
            claim = f"{name}-{pod['name']}"
            self._around.make_claim(pod["namespace"], claim, template.get("spec"))
            yield {"name": name, "persistentVolumeClaim": {"claimName": claim}}

    def _job(self, document: Document) -> None:
        metadata = document["metadata"]
        metadata["uid"] = f"fit-job-{metadata.get('name', '')}"
        given = msgspec.json.decode(_json(document), type=Job)
        spec = defaulted(given.spec, next(iter(self._state.policy.scheduler_names), ""))
        problems = problems_of(given.metadata.name, spec)
        if problems:
            raise ValueError("; ".join(str(problem) for problem in problems))
        job = msgspec.structs.replace(given, spec=spec)
        for claim in job_pods.claims(job):
            self._around.make_claim(
                job.metadata.namespace, claim["metadata"]["name"], claim.get("spec")
            )
        space, annotations = job.metadata.namespace, job.metadata.annotations or {}
        of_namespace = self._around.queue_of(space, annotations, spec.queue or "")
        self._group(groups.of_job(job, self._classes, of_namespace))
        name = groups.name_of(job)
        for role in spec.roles:
            for index in range(min(role.replicas, PODS_MAX + 1)):
                self._pod(job_pods.build(job, role, index, name))


def _meta(metadata: Document) -> Meta:
    return msgspec.json.decode(_json(metadata), type=Meta)


def _json(document: object) -> bytes:
    """A document of YAML as the API server would send it: dates as text."""
    return msgspec.json.encode(document)
