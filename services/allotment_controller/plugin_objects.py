"""What must exist along with a Job's pods: claims, Service, lists of hosts, keys."""

import hashlib

import anyio.to_thread
import msgspec

from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment.core.jobs import keys, plugins, pods
from allotment.core.jobs.model import Job, JsonObject, Notice
from allotment.core.jobs.plugins import ssh
from allotment_controller.objects import PartialObject, collection, path_of
from allotment_controller.ssh_keys import new_keys
from allotment_controller.state import ControllerContext
from allotment_controller.work import Again
from allotment_controller.writes import EXISTS, create, patch_status

KEYS_MADE = {"plugin-ssh": "ssh"}
"""What the Job's `status.controlledResources` says once the name of its Secret is its own."""


_NO_KEYS = ssh.KeyPair("", "")
"""For asking whether the name of the Secret is free."""


class PluginObjects:
    """Makes what is missing, once for each content, and changes the lists of hosts on scaling."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._made: dict[str, bytes] = {}

    def forget(self, uid: str) -> None:
        self._made.pop(uid, None)

    async def ensure(self, job: Job) -> None:
        """Make what is not there. Raises Again."""
        wanted = [*pods.claims(job), *plugins.objects(job)]
        state = hashlib.sha256(msgspec.json.encode([wanted, self._has_ssh(job)])).digest()
        uid = job.metadata.uid
        if self._made.get(uid) == state:
            return
        for body in wanted:
            await self._make(job, body)
        if self._has_ssh(job):
            await self._make_keys(job)
        self._made[uid] = state

    async def _make(self, job: Job, body: JsonObject) -> None:
        answer = await create(self._context.client, body)
        if isinstance(answer, Ok):
            return
        kind = body["kind"]
        if isinstance(answer, Refused) and answer.reason == EXISTS:
            if kind != "PersistentVolumeClaim":  # claims cannot be changed
                await self._adopt(job, body)
            return
        reason = "PVCError" if kind == "PersistentVolumeClaim" else "PluginError"
        await self._refuse(job, reason, f"{kind} {body['metadata']['name']}: {answer.message}")

    async def _adopt(self, job: Job, body: JsonObject) -> None:
        """The object is there: bring it up to date if it is the Job's, else say whose it is not."""
        metadata = body["metadata"]
        path = path_of(body["apiVersion"], body["kind"], metadata["namespace"], metadata["name"])
        answer = await self._context.client.get(path)
        if not isinstance(answer, Ok):
            raise Again(f"{body['kind']} {metadata['name']}: {answer.message}")
        found = msgspec.json.decode(answer.body, type=PartialObject).metadata
        if job.metadata.uid not in [owner.uid for owner in found.owner_references or ()]:
            text = f"{body['kind']} {metadata['name']} exists already and is not the Job's"
            await self._refuse(job, "PluginError", text)
        if body["kind"] != "ConfigMap":
            return
        patched = await self._context.client.patch(path, {"data": body["data"]})
        if not isinstance(patched, Ok):
            raise Again(f"ConfigMap {metadata['name']}: {patched.message}")

    async def _make_keys(self, job: Job) -> None:
        """The Secret with the keys, made once: nothing of it depends on how many pods there are.

        Who may read Secrets could read them all, so the controller may only create them, and
        cannot look up its owner. Therefore the Job's status says beforehand that the name was
        free: a Secret that exists later is the Job's own, of a request whose answer was lost or
        of an earlier life. One that was there before is not, and the Job does not start with it.
        """
        arguments = self._ssh_arguments(job)
        body = ssh.secret(job, ssh.given_keys(arguments) or _NO_KEYS, arguments)
        path = collection("v1", "Secret", job.metadata.namespace)
        is_reserved = KEYS_MADE.items() <= (job.status.controlled_resources or {}).items()
        if not is_reserved:
            asked = await self._context.client.create(path, body, {"dryRun": "All"})
            await self._is_made(job, asked)
            await self._say(job, {"controlledResources": KEYS_MADE})
        if ssh.given_keys(arguments) is None:
            # in a thread: arithmetic that the event loop must not wait for
            pair = await anyio.to_thread.run_sync(new_keys)
            body = ssh.secret(job, pair, arguments)
        answer = await self._context.client.create(path, body)
        if is_reserved and isinstance(answer, Refused) and answer.reason == EXISTS:
            return
        if isinstance(answer, Refused) and answer.reason == EXISTS:
            taken_back: JsonObject = dict.fromkeys(KEYS_MADE)
            await self._say(job, {"controlledResources": taken_back})
        await self._is_made(job, answer)

    async def _is_made(self, job: Job, answer: KubeResult) -> None:
        """Raises Again if the Secret could not be made, or another owner has its name."""
        name = ssh.secret_name(job)
        if isinstance(answer, Refused) and answer.reason == EXISTS:
            text = (
                f"Secret {name} exists already and is not the Job's: delete it, or give the Job "
                "another name; no pod is made before"
            )
            await self._refuse(job, "PluginError", text)
        if not isinstance(answer, Ok):
            await self._refuse(job, "PluginError", f"Secret {name}: {answer.message}")

    async def _refuse(self, job: Job, reason: str, text: str) -> None:
        """Say why the Job does not go on, as an Event and in its status. Raises Again."""
        self._context.reporter.job(job.metadata, Notice("Warning", reason, text))
        if job.status.state.message != text:
            await self._say(job, {"state": {"reason": reason, "message": text}})
        raise Again(text)

    async def _say(self, job: Job, status: JsonObject) -> None:
        """Write a part of the Job's status, whatever the rest of it is by now."""
        about = msgspec.structs.replace(job.metadata, resource_version="")
        written = await patch_status(self._context.client, keys.BATCH, "Job", about, status, Job)
        if written is None:
            raise Again(f"Job {job.metadata.name} is gone")
        self._context.known.jobs.observe(written)

    def _has_ssh(self, job: Job) -> bool:
        return "ssh" in (job.spec.plugins or {})

    def _ssh_arguments(self, job: Job) -> list[str]:
        return (job.spec.plugins or {}).get("ssh") or []
