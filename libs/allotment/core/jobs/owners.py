"""The metadata of what is made for a Job, so that it goes when the Job goes."""

from allotment.core.jobs import keys
from allotment.core.jobs.model import Job, JsonObject


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
