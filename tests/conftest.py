"""What every tier shares: the event loop, a real nats-server, --rewrite for golden files."""

import gc
import os
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from allotment.adapters.log.nats_server import NatsServer
from allotment_board import machine_code
from allotment_board.loops import PLAIN, Loops, MachineCode

HERE = Path(__file__).parent
WAIT_FOR_PROCESSES = frozenset({"apiserver", "e2e", "contract", "bench"})
"""Tiers whose tests wait most of their time, for processes that they start."""

os.environ["COLUMNS"] = "1000"
"""Screens are as wide as their lines, here and in commands that tests start; what is wrapped is
tested at widths of its own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="rewrite golden files from what the code says now; then read the diff",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that wait for processes take turns with files that compute, so that the workers beside
    each other leave no processor idle. Inside both the order is that of the command.
    """
    waiting: dict[Path, list[pytest.Item]] = {}
    computing: dict[Path, list[pytest.Item]] = {}
    for item in items:
        tier = item.path.relative_to(HERE).parts[0]
        files = waiting if tier in WAIT_FOR_PROCESSES else computing
        files.setdefault(item.path, []).append(item)
    none: list[pytest.Item] = []
    turns = zip_longest(waiting.values(), computing.values(), fillvalue=none)
    items[:] = [item for turn in turns for file in turn for item in file]


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of the garbage collector's sight: it stays to the
    end, and looking through it again and again costs up to a tenth of the processor time.
    """
    gc.collect()
    gc.freeze()


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
def compiled_loops() -> Loops | None:
    """The scoring loops as machine code, None if that is switched off; made once for all workers,
    and in the cache for the services that a test starts.
    """
    before = MachineCode.loops
    machine_code.load()
    made, MachineCode.loops = MachineCode.loops, before
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        return None
    assert made.is_compiled, "numba, a dependency, is not there: the loops were not compiled"
    return made


@pytest.fixture(scope="module", params=["loops", "machine code"])
def road(request: pytest.FixtureRequest) -> Loops:
    """The loops as they are, and the same compiled."""
    if request.param == "loops":
        return PLAIN
    made: Loops | None = request.getfixturevalue("compiled_loops")
    if made is None:
        pytest.skip("compiled loops are switched off by NUMBA_DISABLE_JIT")
    return made


@pytest.fixture(scope="module")
def scoring(road: Loops) -> Iterator[None]:
    """The module's tests run once with the loops as they are, and once with them compiled."""
    before, MachineCode.loops = MachineCode.loops, road
    yield
    MachineCode.loops = before
