"""How to reach and be known to an API server: the one job the official client does for us.

Kubeconfig files, exec plugins, token files and the in-cluster service account have twenty years of
corners between them, so the official loaders read them. Everything here that touches files,
processes or the 250 ms import of `kubernetes` runs in a thread.
"""

import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import anyio
import anyio.to_thread
import msgspec

from allotment.adapters.telemetry.log import error_text

TOKEN_CACHE_S = 30.0
"""After this long a token is asked for again; the loader renews it when it is about to expire."""


class KubeConfigError(Exception):
    """Raised when no usable configuration is found; names the file and what is wrong with it."""


class ClusterAddress(msgspec.Struct, frozen=True):
    """Where the API server is and how its certificate is checked."""

    url: str
    source: str
    """What the address was read from, for messages."""
    ssl: ssl.SSLContext | None
    server_name: str | None
    proxy: str | None


class Credentials:
    """The value of the Authorization header, renewed as needed.

    `read` runs in a thread: it returns the current value, or None for clusters that know the client
    by its certificate or not at all; with True it reloads everything.
    """

    def __init__(
        self,
        read: Callable[[bool], str | None],
        clock: Callable[[], float] = time.monotonic,
        cache_s: float = TOKEN_CACHE_S,
    ) -> None:
        self._read = read
        self._clock = clock
        self._cache_s = cache_s
        self._value: str | None = None
        self._read_at_s: float | None = None
        self._refused = False
        self._lock = anyio.Lock()

    async def header(self) -> str | None:
        """The header's value. Raises KubeConfigError when it can no longer be obtained."""
        if not self._is_fresh():
            async with self._lock:  # one exec plugin at a time, however many requests wait
                if not self._is_fresh():
                    self._value = await anyio.to_thread.run_sync(self._read, self._refused)
                    self._read_at_s = self._clock()
                    self._refused = False
        return self._value

    def drop(self, refused: str | None) -> None:
        """The server answered 401 to `refused`: forget it, unless it was renewed meanwhile."""
        if refused == self._value:
            self._read_at_s = None
            self._refused = True

    def _is_fresh(self) -> bool:
        return self._read_at_s is not None and self._clock() - self._read_at_s < self._cache_s


async def load_access(
    kubeconfig: Path | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[ClusterAddress, Credentials]:
    """Read the configuration: `kubeconfig`, else $KUBECONFIG, else in-cluster, else ~/.kube/config.

    Raises KubeConfigError.
    """
    where = _where(kubeconfig, environ)
    loaded = await anyio.to_thread.run_sync(_load, where, context)
    address = await anyio.to_thread.run_sync(_address, loaded, where)

    def read(reload: bool) -> str | None:
        nonlocal loaded
        if reload:
            loaded = _load(where, context)
        return _authorization(loaded, where)

    return address, Credentials(read)


def _where(kubeconfig: Path | None, environ: Mapping[str, str]) -> str | None:
    """The kubeconfig to read, or None for the pod's service account."""
    if kubeconfig is not None:
        return str(kubeconfig)
    if listed := environ.get("KUBECONFIG"):
        return listed
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    return str(Path(environ.get("HOME", "~"), ".kube", "config").expanduser())


def _source(where: str | None) -> str:
    return "the pod's service account" if where is None else f"kubeconfig {where}"


def _load(where: str | None, context: str | None) -> Any:
    from kubernetes import config
    from kubernetes.client import Configuration

    loaded = Configuration()
    try:
        if where is None:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=loaded
            )
        else:
            if not any(os.path.isfile(part) for part in where.split(os.pathsep)):
                raise KubeConfigError(
                    f"kubeconfig {where}: no such file; give --kubeconfig or set KUBECONFIG"
                )
            config.load_kube_config(  # type: ignore[no-untyped-call]
                where, context, client_configuration=loaded
            )
    except KubeConfigError:
        raise
    except Exception as error:  # the loaders raise anything from YAML errors to TypeError
        chosen = f", context {context!r}" if context else ""
        raise KubeConfigError(f"{_source(where)}{chosen}: {error_text(error)}") from error
    return loaded


def _address(loaded: Any, where: str | None) -> ClusterAddress:
    url = str(loaded.host).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise KubeConfigError(f"{_source(where)}: server {url!r}: expected http(s)://host:port")
    tls: ssl.SSLContext | None = None
    if url.startswith("https://"):
        try:
            tls = ssl.create_default_context(cafile=loaded.ssl_ca_cert or None)
            # Python 3.13 sets this by default and then rejects cluster CAs without keyUsage or an
            # authority key identifier (older EKS and GKE, MicroK8s). kubectl accepts them. Chain,
            # dates and host name are checked as before.
            tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if loaded.cert_file:
                tls.load_cert_chain(loaded.cert_file, loaded.key_file or None)
        except (OSError, ssl.SSLError) as error:
            raise KubeConfigError(f"{_source(where)}: certificates: {error_text(error)}") from error
        if not loaded.verify_ssl:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
    return ClusterAddress(
        url=url,
        source=_source(where),
        ssl=tls,
        server_name=loaded.tls_server_name or None,
        proxy=_proxy(loaded.proxy, url),
    )


def _proxy(proxy: str | None, url: str) -> str | None:
    """A kubeconfig's own proxy is always meant; the environment's is not for NO_PROXY or loopback.

    The official loader mixes the two and leaves NO_PROXY to a transport that is not ours.
    """
    if not proxy:
        return None
    host = urlsplit(url).hostname or ""
    is_near = host == "localhost" or host == "::1" or host.startswith("127.")
    if proxy in getproxies().values() and (is_near or proxy_bypass(host)):
        return None
    return proxy


def _authorization(loaded: Any, where: str | None) -> str | None:
    try:
        value = loaded.get_api_key_with_prefix("BearerToken", alias="authorization")
    except Exception as error:  # a hook that runs the user's own plugin
        raise KubeConfigError(f"{_source(where)}: credentials: {error_text(error)}") from error
    return None if value is None else str(value)
