"""Each case runs against local mode's API server, and against a real one where there is one."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.apiserver.servers import ASSETS, Api, KubeApiserver, api_of, kube_apiserver


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


@pytest.fixture
def own(tmp_path: Path) -> Iterator[KubeApiserver]:
    """A server of this test's own: pods that other tests left would be scheduled as well."""
    with kube_apiserver(tmp_path, os.environ) as server:
        if server.audit is None:
            pytest.skip(f"needs the API server's audit log: set {ASSETS}")
        yield server
