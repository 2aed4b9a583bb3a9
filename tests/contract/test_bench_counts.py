"""What the end-to-end bench reads of an API server that behaves like a kube-apiserver."""

from pathlib import Path

import pytest
from aiohttp import web
from tests.contract.kube_server import kubeconfig, scripted

from allotment_lab.bench.e2e.counts import requests
from allotment_lab.bench.e2e.load import bare_client

pytestmark = pytest.mark.anyio
PAGE = """\
# TYPE apiserver_request_total counter
apiserver_request_total{verb="POST",resource="pods",subresource="binding"} 7
apiserver_request_total{verb="POST",resource="leases",subresource=""} 9
"""


async def test_a_server_that_compresses_large_answers_is_counted_too(tmp_path: Path) -> None:
    async def compressing(_: web.Request) -> web.StreamResponse:
        page = web.Response(text=PAGE)
        page.enable_compression()  # if the client accepts it, as a kube-apiserver does
        return page

    async with scripted() as script:
        script.otherwise = compressing
        async with bare_client(kubeconfig(tmp_path / "kubeconfig", script.url)) as bare:
            assert await requests(bare) == {"POST pods/binding": 7}
