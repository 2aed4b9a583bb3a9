"""A short text in a ConfigMap: what must be known again after everything else was lost."""

import msgspec

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.result import KubeResult, Ok, Refused

KEY = "text"


class TextUnavailable(Exception):
    """The API server did not answer, or refused; the text says what and why."""


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class KeptText:
    """One key of a ConfigMap that no other client writes."""

    def __init__(self, client: KubeClient, namespace: str, name: str, key: str = KEY) -> None:
        self.namespace = namespace
        self.name = f"ConfigMap {namespace}/{name}"
        self.remove = f"kubectl -n {namespace} delete configmap {name}"
        """The command that makes a service forget the text."""
        self._client = client
        self._key = key
        self._folder = f"/api/v1/namespaces/{namespace}/configmaps"
        self._meta = {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "allotment"},
        }

    async def read(self) -> str | None:
        """The text, None where the ConfigMap or the key does not exist. Raises TextUnavailable."""
        answer = await self._client.get(f"{self._folder}/{self._meta['name']}")
        if isinstance(answer, Refused) and answer.status == 404:
            return None
        body = self._body(answer)
        try:
            return (msgspec.json.decode(body, type=_ConfigMap).data or {}).get(self._key)
        except msgspec.MsgspecError as error:
            raise TextUnavailable(f"{self.name}: {error}") from error

    async def write(self, text: str) -> None:
        """Replace the text; make the ConfigMap if it is not there. Raises TextUnavailable."""
        data = {"data": {self._key: text}}
        answer = await self._client.patch(f"{self._folder}/{self._meta['name']}", data)
        if isinstance(answer, Refused) and answer.status == 404:
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": self._meta, **data}
            answer = await self._client.create(self._folder, made)
        self._body(answer)

    def _body(self, answer: KubeResult) -> bytes:
        if isinstance(answer, Ok):
            return answer.body
        raise TextUnavailable(f"{self.name}: {answer.message}")
