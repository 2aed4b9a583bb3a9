"""Mistakes in annotations become Events on the object that carries them, each once."""

from typing import Any

from allotment_local.apiserver.resources import EVENTS
from allotment_local.apiserver.store import Store
from allotment_local.nodes.annotations import Mistake
from allotment_local.nodes.statuses import event

INVALID_ANNOTATION = "InvalidAnnotation"


class Reports:
    """Says everything once, however often it is found."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._said: dict[str, set[Mistake]] = {}
        self._number = 0

    def mistake(self, about: dict[str, Any], node: str, mistake: Mistake) -> None:
        said = self._said.setdefault(about["metadata"]["uid"], set())
        if mistake not in said:
            said.add(mistake)
            self.warn(about, node, INVALID_ANNOTATION, str(mistake))

    def warn(self, about: dict[str, Any], node: str, reason: str, message: str) -> None:
        """A Warning Event on a Pod or a Node."""
        self._number += 1
        metadata = about["metadata"]
        name = f"{metadata['name'][:200]}.{metadata['uid'][:8]}{self._number:08x}"
        made = event(about, name, reason, message[:1000], node, self._store.now())
        self._store.create(EVENTS, made["metadata"]["namespace"], made)

    def forget(self, uid: str) -> None:
        self._said.pop(uid, None)
