"""A stand-in for a service that speaks S3: objects in memory, addressed by path."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from xml.sax.saxutils import escape

from aiohttp import web


class Bucket:
    """The objects. While `is_down` every request is answered with 503."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.is_down = False
        self.url = ""
        self._uploads: dict[str, dict[int, bytes]] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.is_down:
            return web.Response(status=503, text="<Error><Code>SlowDown</Code></Error>")
        if "credential" not in request.headers.get("Authorization", "").lower():
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        key, query = request.path.lstrip("/").partition("/")[2], request.query
        if request.method == "GET" and "list-type" in query:
            return self._listed(query.get("prefix", ""))
        if request.method == "POST" and "uploads" in query:
            self._uploads[key] = {}
            return self._xml("InitiateMultipartUploadResult", f"<UploadId>{len(key)}</UploadId>")
        if request.method == "POST" and "delete" in query:
            gone = re.findall(r"<Key>(.+?)</Key>", await request.text())
            for each in gone:
                self.objects.pop(each, None)
            rows = "".join(f"<Deleted><Key>{escape(each)}</Key></Deleted>" for each in gone)
            return self._xml("DeleteResult", rows)
        if request.method == "POST":
            parts = self._uploads.pop(key)
            self.objects[key] = b"".join(parts[number] for number in sorted(parts))
            return self._xml("CompleteMultipartUploadResult", "<ETag>1</ETag>")
        if request.method == "PUT" and "partNumber" in query:
            self._uploads[key][int(query["partNumber"])] = await request.read()
            return web.Response(headers={"ETag": '"1"'})
        if request.method == "PUT":
            self.objects[key] = await request.read()
            return web.Response(headers={"ETag": '"1"'})
        if key not in self.objects:
            return web.Response(status=404, text="<Error><Code>NoSuchKey</Code></Error>")
        return self._part(self.objects[key], request.headers.get("Range", ""))

    def _part(self, data: bytes, wanted: str) -> web.Response:
        headers = {"ETag": '"1"', "Last-Modified": "Sat, 28 Nov 2026 00:00:00 GMT"}
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted)
        if not found:
            return web.Response(body=data, headers=headers)
        first, last = int(found[1]), min(int(found[2]), len(data) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return web.Response(status=206, body=data[first : last + 1], headers=headers)

    def _listed(self, prefix: str) -> web.Response:
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
            "<LastModified>2026-11-28T00:00:00.000Z</LastModified></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        return self._xml("ListBucketResult", f"<IsTruncated>false</IsTruncated>{rows}")

    def _xml(self, name: str, inner: str) -> web.Response:
        return web.Response(text=f"<{name}>{inner}</{name}>", content_type="application/xml")


@asynccontextmanager
async def bucket() -> AsyncIterator[Bucket]:
    """A server on a free port of loopback."""
    found = Bucket()
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield found
    finally:
        await runner.cleanup()
