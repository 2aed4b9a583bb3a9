"""A new watcher must not take an API server's old memory for what is true now."""

from collections.abc import Mapping
from typing import Any, cast

import anyio
import pytest

from allotment.adapters.kube import KubeClient, Unknown
from allotment_watcher import objects
from allotment_watcher.__main__ import PODS, Context, _reflect


class _Asked(Exception):
    """Leaves the reflector once it asked for its first list."""

    def __init__(self, params: Mapping[str, str]) -> None:
        super().__init__(str(params))
        self.params = params


class _Client:
    async def list(self, path: str, params: Mapping[str, str]) -> Unknown:
        raise _Asked(params)


async def _ignore(event: object) -> None: ...


@pytest.mark.anyio
async def test_the_first_list_is_a_consistent_one() -> None:
    """The log already knows pods. A list from the server's cache may be older than that, and a
    pod that is missing in it would be told as gone: its cards would be handed out again while it
    runs.
    """
    client = cast(KubeClient, _Client())
    with anyio.fail_after(5), pytest.raises(_Asked) as asked:
        await _reflect(cast(Context, cast(Any, None)), client, PODS, objects.PodObject, _ignore)
    assert "resourceVersion" not in asked.value.params
