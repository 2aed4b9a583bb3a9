"""The metadata of objects created for a Job, so that they are deleted with it."""

from allotment.core.jobs import keys
from allotment.core.jobs.model import Job, JsonObject

BLOCKED_OWNERS = (
    (keys.BATCH, "Job"),
    ("v1", "Pod"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
)
"""Owners, as (apiVersion, kind), whose foreground deletion waits for the objects that we created
for them.

An API server with the admission plugin OwnerReferencesPermissionEnforcement requires the right to
update the owner's `finalizers` from a client that sets blockOwnerDeletion. The controller has it
for these kinds only; a reference to any other owner goes without the field, or the whole object
would be refused.
"""


def owner_of(job: Job) -> JsonObject:
    """The reference to put into metadata.ownerReferences."""
    return {
        "apiVersion": keys.BATCH,
        "kind": "Job",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owned(job: Job, name: str) -> JsonObject:
    """The metadata of an object of the Job."""
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "ownerReferences": [owner_of(job)],
    }
