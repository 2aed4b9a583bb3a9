"""What must exist beside a Job's pods: claims, Service, lists of hosts, keys."""

import hashlib

import anyio.to_thread
import msgspec

from allotment.adapters.kube import Ok, Refused
from allotment.core.jobs import plugins, pods
from allotment.core.jobs.model import Job, JsonObject, Meta, Notice
from allotment.core.jobs.plugins import ssh
from allotment_controller.objects import path_of
from allotment_controller.ssh_keys import new_keys
from allotment_controller.state import Desk
from allotment_controller.work import Again
from allotment_controller.writes import EXISTS, create

_KEPT = ("Secret", "PersistentVolumeClaim")
"""Kinds that are made once and not looked at again: keys must not change, claims cannot."""


class Owned(msgspec.Struct):
    """What is read of an object that was there already."""

    metadata: Meta


class PluginObjects:
    """Makes what is missing, once for each content, and changes the lists of hosts on scaling."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._made: dict[str, bytes] = {}

    def forget(self, uid: str) -> None:
        self._made.pop(uid, None)

    async def ensure(self, job: Job, *, is_new: bool) -> None:
        """Make what is not there. `is_new`: the Job begins a life. Raises Again."""
        wanted = [*pods.claims(job), *plugins.objects(job)]
        hosts = ssh.config(job, self._ssh_arguments(job)) if self._has_ssh(job) else ""
        state = hashlib.sha256(msgspec.json.encode([wanted, hosts])).digest()
        uid = job.metadata.uid
        if self._made.get(uid) == state:
            return
        is_new = is_new and uid not in self._made
        for body in wanted:
            await self._make(job, body)
        if self._has_ssh(job):
            await self._make_keys(job, hosts, is_new)
        self._made[uid] = state

    async def _make(self, job: Job, body: JsonObject) -> None:
        answer = await create(self._desk.client, body)
        if isinstance(answer, Ok):
            return
        kind = body["kind"]
        if isinstance(answer, Refused) and answer.reason == EXISTS:
            if kind not in _KEPT:
                await self._adopt(job, body)
            return
        reason = "PVCError" if kind == "PersistentVolumeClaim" else "PluginError"
        self._refuse(job, reason, f"{kind} {body['metadata']['name']}: {answer.message}")

    async def _adopt(self, job: Job, body: JsonObject) -> None:
        """The object is there: bring it up to date if it is the Job's, else say whose it is not."""
        metadata = body["metadata"]
        path = path_of(body["apiVersion"], body["kind"], metadata["namespace"], metadata["name"])
        answer = await self._desk.client.get(path)
        if not isinstance(answer, Ok):
            raise Again(f"{body['kind']} {metadata['name']}: {answer.message}")
        found = msgspec.json.decode(answer.body, type=Owned).metadata
        if job.metadata.uid not in [owner.uid for owner in found.owner_references or ()]:
            text = f"{body['kind']} {metadata['name']} exists already and is not the Job's"
            self._refuse(job, "PluginError", text)
        if body["kind"] != "ConfigMap":
            return
        patched = await self._desk.client.patch(path, {"data": body["data"]})
        if not isinstance(patched, Ok):
            raise Again(f"ConfigMap {metadata['name']}: {patched.message}")

    async def _make_keys(self, job: Job, hosts: str, is_new: bool) -> None:
        """The Secret with the keys; where it exists only its list of hosts is renewed."""
        arguments = self._ssh_arguments(job)
        if not is_new:
            path = path_of("v1", "Secret", job.metadata.namespace, ssh.secret_name(job))
            answer = await self._desk.client.patch(path, {"stringData": {"config": hosts}})
            if isinstance(answer, Ok):
                return
            if not (isinstance(answer, Refused) and answer.status == 404):
                raise Again(f"Secret {ssh.secret_name(job)}: {answer.message}")
        pair = ssh.given_keys(arguments)
        if pair is None:  # in a thread: arithmetic that the event loop must not wait for
            pair = await anyio.to_thread.run_sync(new_keys)
        await self._make(job, ssh.secret(job, pair, arguments))

    def _refuse(self, job: Job, reason: str, text: str) -> None:
        self._desk.teller.job(job.metadata, Notice("Warning", reason, text))
        raise Again(text)

    def _has_ssh(self, job: Job) -> bool:
        return "ssh" in (job.spec.plugins or {})

    def _ssh_arguments(self, job: Job) -> list[str]:
        return (job.spec.plugins or {}).get("ssh") or []
