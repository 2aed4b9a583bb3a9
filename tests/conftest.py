"""What every tier shares: the event loop, a real nats-server, --rewrite for golden files."""

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from allotment.adapters.log.nats_server import NatsServer
from allotment.adapters.service import machine_code
from allotment.core.placement.board.loops import PLAIN, Loops, MachineCode


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="rewrite golden files from what the code says now; then read the diff",
    )


@pytest.fixture(scope="session")
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One server for the whole run: give streams and subjects names of your own, never stop it."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def own_nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of the test's own, to stop, kill, freeze or fill."""
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def no_blocking() -> Iterator[None]:
    """Fails the test when our code blocks the event loop (files, sockets, time.sleep)."""
    with blockbuster_ctx(["allotment"]):
        yield


@pytest.fixture(scope="session")
def compiled_loops(tmp_path_factory: pytest.TempPathFactory) -> Loops | None:
    """The scoring loops as machine code, None without a compiler; made once for all workers, and
    in the cache for the services that a test starts.
    """
    before = MachineCode.loops
    with open(tmp_path_factory.getbasetemp().parent / "machine-code.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        machine_code.load()
    made, MachineCode.loops = MachineCode.loops, before
    return made if made.is_compiled else None


@pytest.fixture(scope="module", params=["loops", "machine code"])
def scoring(request: pytest.FixtureRequest) -> Iterator[None]:
    """The module's tests run once with the loops as they are, and once with them compiled."""
    before = MachineCode.loops
    MachineCode.loops = PLAIN
    if request.param == "machine code":
        made = request.getfixturevalue("compiled_loops")
        if made is None:
            pytest.skip("numba is not installed, or switched off")
        MachineCode.loops = made
    yield
    MachineCode.loops = before
