"""Who may ask, and how: the methods, the host name, the token; and the headers of every answer.

The pages are for browsers, and a browser can be made to ask by any site that its user has open. So
only reading is possible; the host name must be one of ours, or else a name that an enemy owns could
be made to lead here (an address cannot: it has no owner); what another site asks for in the
user's name is refused, unless it is a link that the user followed; and no page runs, loads or
frames anything of others.

The token is compared in constant time. A browser shows it once in a header, which a script of ours
sends, and gets a cookie that holds a digest and an end: so no address, no history and no log has
the token. The cookie's name follows from the token, since browsers do not tell the ports of a host
apart: two inspectors on one host with tokens of their own leave each other's cookies alone.
"""

import hashlib
import hmac
from collections.abc import Callable, Collection

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from allotment.adapters.service.http import host_of, is_own_host

_COOKIE = "allotment_inspector"
COOKIE_S = 30 * 86_400
OPEN = ("/static/", "/token")
"""What needs no token: the style and scripts of the page that asks for it."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "style-src-attr 'unsafe-inline'",  # lengths, and nothing else: templates escape the rest
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Said = Callable[[web.Request, int, str, str], web.StreamResponse]
"""A page that says one thing: status, title, text."""


class Guard:
    """The rules for one server. `said` draws what is answered instead of a page."""

    def __init__(
        self,
        names: Collection[str],
        token: str | None,
        said: Said,
        clock_s: Callable[[], float],
    ) -> None:
        self.refused: dict[str, int] = {"host": 0, "method": 0, "site": 0, "token": 0}
        self._names = frozenset(name.lower().rstrip(".") for name in names)
        self._token = None if token is None else token.encode()
        self._said = said
        self._clock_s = clock_s

    def middleware(self) -> Middleware:
        """To be the outermost of an application."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            refused = self._refusal(request)
            if refused is not None:
                return refused
            return await handler(request)

        return guarded

    def admits_token(self, shown: str) -> bool:
        """Whether that is the token."""
        return self._token is None or hmac.compare_digest(_bytes_of(shown), self._token)

    def greet(self, request: web.Request) -> web.Response:
        """Answer who shows the token in a header: with a cookie."""
        if not self.admits_token(_bearer(request)):
            self.refused["token"] += 1
            return web.Response(status=401, text="wrong token\n")
        response = web.Response(text="welcome\n")
        if self._token is not None:
            response.set_cookie(
                cookie_name(self._token),
                self._cookie(int(self._clock_s()) + COOKIE_S),
                max_age=COOKIE_S,
                httponly=True,
                secure=_is_encrypted(request),
                samesite="Lax",
                path="/",
            )
        return response

    def _refusal(self, request: web.Request) -> web.StreamResponse | None:
        if request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            self.refused["method"] += 1
            response = self._said(
                request, 405, "Read only", "The inspector accepts GET and HEAD only."
            )
            response.headers[hdrs.ALLOW] = "GET, HEAD"
            return response
        host = host_of(request.headers.get(hdrs.HOST, ""))
        if not is_own_host(host, self._names):
            self.refused["host"] += 1
            text = (
                f"This is not {host!r}. Ask by address, as localhost, or by a name that the"
                " setting page_names lists."
            )
            return self._said(request, 421, "Unknown host name", text)
        if _is_foreign(request):
            self.refused["site"] += 1
            text = "Another site sent this request. Open the address yourself."
            return self._said(request, 403, "Cross-site request", text)
        if self._token is None or request.path.startswith(OPEN) or self._is_known(request):
            return None
        self.refused["token"] += 1
        response = self._said(request, 401, "Sign in", "This inspector requires a token.")
        response.headers[hdrs.WWW_AUTHENTICATE] = 'Bearer realm="allotment-inspector"'
        return response

    def _is_known(self, request: web.Request) -> bool:
        if shown := _bearer(request):
            return self.admits_token(shown)
        assert self._token is not None
        cookie = request.cookies.get(cookie_name(self._token), "")
        until = cookie.partition(".")[0]
        if not (until.isascii() and until.isdigit() and len(until) < 16):
            return False
        is_ours = hmac.compare_digest(_bytes_of(cookie), self._cookie(int(until)).encode())
        return is_ours and self._clock_s() < int(until)

    def _cookie(self, until_s: int) -> str:
        """Shows until then that its holder had the token, without being it."""
        assert self._token is not None
        signed = hmac.new(self._token, f"{_COOKIE} {until_s}".encode(), hashlib.sha256)
        return f"{until_s}.{signed.hexdigest()}"


def cookie_name(token: bytes) -> str:
    """The name of the cookie that stands for a token."""
    return f"{_COOKIE}_{hmac.new(token, _COOKIE.encode(), hashlib.sha256).hexdigest()[:8]}"


def _is_foreign(request: web.Request) -> bool:
    """Whether a browser says that another site is behind this, and no link that was followed. A
    port other than ours is another site as well.
    """
    if request.headers.get("Sec-Fetch-Site", "none") in ("same-origin", "none"):
        return False
    asked = request.headers.get("Sec-Fetch-Mode"), request.headers.get("Sec-Fetch-Dest")
    return asked != ("navigate", "document")


def _is_encrypted(request: web.Request) -> bool:
    """Whether the browser came by https, perhaps to a proxy before us."""
    forwarded = request.headers.get("X-Forwarded-Proto", "").partition(",")[0]
    return request.secure or forwarded.strip().lower() == "https"


def _bytes_of(header: str) -> bytes:
    """A header as it was sent: bytes that are not UTF-8 are surrogates in aiohttp's text."""
    return header.encode(errors="surrogateescape")


def _bearer(request: web.Request) -> str:
    kind, _, shown = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return shown.strip() if kind.lower() == "bearer" else ""
