"""Each case runs against local mode's API server, and against a real one where there is one."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.apiserver.servers import Api, KubeApiserver, api_of, kube_apiserver


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApiserver]:
    """A real kube-apiserver, one for the whole run."""
    with kube_apiserver(tmp_path_factory.mktemp("kube"), os.environ) as server:
        yield server


@pytest.fixture(scope="session", params=["local mode", "kube-apiserver"])
def server(request: pytest.FixtureRequest) -> KubeApiserver | None:
    """The real one, or None: local mode's, which each test starts for itself."""
    if request.param == "local mode":
        return None
    found: KubeApiserver = request.getfixturevalue("real")
    return found


@pytest.fixture
async def api(server: KubeApiserver | None, tmp_path: Path) -> AsyncIterator[Api]:
    async with api_of(server, tmp_path) as made:
        yield made
