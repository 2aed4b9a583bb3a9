"""A new Job for `allot job run`: from a manifest, or from flags as vcctl has them."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from allotment.core import units
from allotment.core.errors import AllotError
from allotment.core.jobs import keys
from allotment.core.jobs.admission import defaulted, problems_of
from allotment.core.jobs.model import JobSpec

LABEL = "volcano.sh/job-name"


class WantedJob(NamedTuple):
    """What the flags say: one container, `replicas` times."""

    name: str
    namespace: str
    image: str
    min: int
    replicas: int
    requests: str
    limits: str
    scheduler: str


def job_of_flags(wanted: WantedJob) -> dict[str, Any]:
    """The manifest. Raises `AllotError` for amounts that are none, or a Job that makes no sense."""
    requests, limits = amounts(wanted.requests, "--requests"), amounts(wanted.limits, "--limits")
    for name in sorted(requests.keys() & limits.keys()):
        asked, most = units.parse(requests[name]), units.parse(limits[name])
        if asked[0] * most[1] > most[0] * asked[1]:
            raise AllotError(
                f"--requests {name}={requests[name]} is more than the limit {limits[name]}",
                f"raise it with --limits {name}=…",
            )
    container = {
        "name": wanted.name,
        "image": wanted.image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": requests, "limits": limits},
    }
    template = {
        "metadata": {"labels": {LABEL: wanted.name}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    body = {
        "apiVersion": keys.BATCH,
        "kind": "Job",
        "metadata": {"name": wanted.name, "namespace": wanted.namespace},
        "spec": {
            "schedulerName": wanted.scheduler,
            "minAvailable": wanted.min,
            "tasks": [{"name": "default", "replicas": wanted.replicas, "template": template}],
        },
    }
    _check(body, "the job")
    return body


def amounts(text: str, flag: str) -> dict[str, str]:
    """``cpu=1000m,memory=100Mi`` as a map. Raises `AllotError`."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, amount = part.partition("=")
        if not equals or not name:
            raise AllotError(
                f"{flag} {part!r} is not an amount", "write it like cpu=1000m,memory=100Mi"
            )
        try:
            units.parse(amount)
        except units.QuantityError as error:
            raise AllotError(f"{flag} {name}: {error}") from error
        found[name] = amount
    return found


def job_of_file(path: Path, namespace: str) -> dict[str, Any]:
    """The manifest of a file that holds one Job. Raises `AllotError`, naming the file."""
    try:
        documents = [d for d in yaml.safe_load_all(path.read_text(encoding="utf-8")) if d]
    except OSError as error:
        raise AllotError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AllotError(f"{path} is not YAML: {error}") from error
    if len(documents) != 1:
        raise AllotError(
            f"{path} holds {len(documents)} documents, not one Job", f"kubectl apply -f {path}"
        )
    body = documents[0]
    kind = (body.get("apiVersion"), body.get("kind")) if isinstance(body, dict) else ()
    if kind != (keys.BATCH, "Job"):
        raise AllotError(f"{path} holds no Job of {keys.BATCH}", f"kubectl apply -f {path}")
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise AllotError(f"{path}: metadata.name is missing")
    metadata.setdefault("namespace", namespace)
    _check(body, str(path))
    return dict(body)


def _check(body: dict[str, Any], place: str) -> None:
    """What the controller would refuse is refused here, with the same words."""
    try:
        spec = msgspec.convert(body.get("spec"), JobSpec)
    except msgspec.ValidationError as error:
        raise AllotError(f"{place}: spec cannot be read: {error}") from error
    problems = problems_of(body["metadata"]["name"], defaulted(spec, "volcano"))
    if problems:
        raise AllotError(f"{place}: {problems[0]}", "; ".join(map(str, problems[1:])))
