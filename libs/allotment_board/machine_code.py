"""The board's loops as machine code: never a different answer than uncompiled.

Loading takes a second and 100 MiB. Compiling takes ten seconds once: the code is kept in the user's
cache, or where `NUMBA_CACHE_DIR` points, if that is writable.
A service leaves compiling to a process with low priority: in a thread of its own it would stop the
service again and again, for up to half a second. One process at a time compiles for a cache; who
waited for it loads what it made. An image is built with the code in it:

    NUMBA_CACHE_DIR=<prefix>/share/allotment/machine-code \\
        python -m allotment_board.machine_code

`NUMBA_DISABLE_JIT=1` switches it off, as everywhere with numba.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from types import FunctionType
from typing import Any

import numpy as np

from allotment.adapters.telemetry.log import one_line
from allotment_board.loop_parts import PARTS
from allotment_board.loops import PLAIN, SIGNATURES, Loops, MachineCode

SHIPPED = Path(sys.prefix) / "share/allotment/machine-code"
"""Code that came with the installation. numba reads a cache only where it could write one."""

_NICENESS = 5
"""Of the process that compiles for a service."""
_FOR_A_SERVICE = "--while-stdin-is-open"

_loading: list[Thread] = []


class _NotKeptError(Exception):
    """Raised where only code from the cache is loaded, and it is not there."""


class BrokenCompilerError(Exception):
    """Raised when numba is there and cannot make the code; says why. The loops run uncompiled."""


def load() -> bool:
    """Bring the compiled loops in; False if there is no compiler, or it is switched off. What the
    cache has not is compiled here and now.

    Raises BrokenCompilerError.
    """
    return _load(may_compile=True)


def _load(*, may_compile: bool) -> bool:
    """Raises BrokenCompilerError, and _NotKeptError if it may not compile."""
    if not is_in_use():
        made = _compiled(PLAIN[: len(SIGNATURES)], SIGNATURES, may_compile=may_compile)
        if made is not None:
            MachineCode.loops = Loops._make((*made, True))
    return is_in_use()


def is_in_use() -> bool:
    """Whether nodes are scored by compiled loops."""
    return MachineCode.loops.is_compiled


def is_loading() -> bool:
    """Whether they are being brought in: who can do without for a while had better wait."""
    return bool(_loading) and _loading[0].is_alive()


def load_in_thread(on_broken: Callable[[str], None]) -> None:
    """Bring them in, in a thread of its own, at the first call, and have them compiled in a process
    of its own. Decisions go on with the uncompiled loops until the code is there, and for good if
    it cannot be made: then `on_broken` is called with the reason, in that thread.
    """
    if not _loading:
        _loading.append(Thread(target=_load_or_tell, args=[on_broken], name="machine-code"))
        _loading[0].daemon = True
        _loading[0].start()


def numba_version() -> str | None:
    """The compiler's version; None if there is none that can be used."""
    try:
        numba = _compiler()
    except BrokenCompilerError:
        return None
    return None if numba is None else str(numba.__version__)


def _load_or_tell(on_broken: Callable[[str], None]) -> None:
    try:
        try:
            _load(may_compile=False)
        except _NotKeptError:
            compile_elsewhere()
            load()
    except BrokenCompilerError as error:
        on_broken(str(error))


def compile_elsewhere() -> None:
    """Fill the cache from another process. If that fails, the next to load compiles after all."""
    command = [sys.executable, "-m", "allotment_board.machine_code", _FOR_A_SERVICE]
    quiet = subprocess.DEVNULL
    with (
        suppress(OSError),
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet) as process,
    ):
        process.wait()


def _end_with_stdin() -> None:
    """However a service ends, its end of the pipe is closed."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def _compiler() -> Any | None:
    """The numba module; None if it is not installed, or switched off."""
    if find_spec("numba") is None:
        return None
    try:
        import numba
        import numba.core.event
        import numba.extending
    except Exception as error:  # built for another NumPy, without its libraries, ...
        raise BrokenCompilerError(one_line(error)) from error
    config: Any = numba.config
    return None if config.DISABLE_JIT else numba


def _compiled(
    functions: Sequence[Any], signatures: Sequence[str], *, may_compile: bool
) -> list[Callable[..., Any]] | None:
    """The functions for arguments of these types only: nothing is compiled amid a decision.

    Code in the cache that cannot be read is thrown away; a service that may compile does so without
    the cache.
    """
    numba = _compiler()
    if numba is None:
        return None
    kept_at = _cache_directory(numba.config, _fingerprint([*PARTS, *functions]))
    before = numba.config.CACHE_DIR

    def make(*, cached: bool) -> list[Callable[..., Any]]:
        return [
            numba.njit(signature, cache=cached, error_model="numpy")(function)
            for function, signature in zip(functions, signatures, strict=True)
        ]

    try:
        for part in PARTS:
            numba.extending.register_jitable(part)
        numba.typeof(np.zeros(0))  # imports now what the first array would have it import
        if kept_at is None:
            return make(cached=False)
        numba.config.CACHE_DIR = str(kept_at)
        with _alone(kept_at.parent):
            try:
                _take_shipped(kept_at)
                with nullcontext() if may_compile else _no_compiling(numba):
                    return make(cached=True)
            except _NotKeptError:
                raise
            except Exception:
                shutil.rmtree(kept_at, ignore_errors=True)
        if not may_compile:
            raise _NotKeptError
        return make(cached=False)
    except _NotKeptError:
        raise
    except Exception as error:  # a compiler and a cache can fail in any way
        raise BrokenCompilerError(one_line(error)) from error
    finally:
        numba.config.CACHE_DIR = before


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """While no other process is at work on caches in this directory."""
    held = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


@contextmanager
def _no_compiling(numba: Any) -> Iterator[None]:
    """Raises _NotKeptError out of numba at what it would compile."""

    def refuse(_listener: object, _event: object) -> None:
        raise _NotKeptError

    event = numba.core.event
    answers = {"on_start": refuse, "on_end": lambda _listener, _event: None}
    with event.install_listener("numba:compile", type("Refusal", (event.Listener,), answers)()):
        yield


def _cache_directory(config: Any, name: str) -> Path | None:
    """Where the code is kept; None if nowhere (no home directory, not writable)."""
    try:
        base = Path(config.CACHE_DIR or Path("~/.cache/allotment").expanduser())
    except RuntimeError:
        return None
    return base / name if _is_writable(base / name) else None


def _take_shipped(kept_at: Path) -> None:
    shipped = SHIPPED / kept_at.name
    if shipped.is_dir() and not any(kept_at.iterdir()):
        shutil.copytree(shipped, kept_at, dirs_exist_ok=True)


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def _fingerprint(functions: list[Callable[..., Any]]) -> str:
    """Of all that goes into the code, constants of other modules too: numba itself looks at one
    file only, and would take old code for an upgraded one.
    """
    content = sha256()
    for function in functions:
        assert isinstance(function, FunctionType)
        code = function.__code__
        values = [function.__globals__.get(name) for name in code.co_names]
        values += [cell.cell_contents for cell in function.__closure__ or ()]
        constants = [
            value.tolist() if isinstance(value, np.ndarray) else value
            for value in (*values, *code.co_consts)
            if isinstance(value, (int, str, tuple, np.ndarray))
        ]
        content.update(code.co_code + repr(constants).encode())
    return content.hexdigest()[:16]


if __name__ == "__main__":
    if _FOR_A_SERVICE in sys.argv:
        os.nice(_NICENESS)
        Thread(target=_end_with_stdin, daemon=True).start()
    if not load():
        raise SystemExit("numba is not installed, or switched off")
