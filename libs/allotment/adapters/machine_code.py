"""The core's scoring loops as machine code, where numba is installed: never a different answer.

Loading takes a second and 100 MiB, so that it is for large clusters. Compiling takes ten seconds
once: the code is kept in the user's cache, or where `NUMBA_CACHE_DIR` points, if that is writable.
`NUMBA_DISABLE_JIT=1` switches it off, as everywhere with numba.
"""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Thread
from types import FunctionType
from typing import Any

import numpy as np

from allotment.core import kernel
from allotment.core.kernel_layout import PARTS
from allotment.core.kernel_plan import MachineCode

NODES_MIN = 512
"""Below this NumPy is quick enough."""

_loading: list[Thread] = []


def load() -> bool:
    """Bring the compiled loops in; False if there is no compiler."""
    if MachineCode.score_positions is None:
        MachineCode.score_positions = _compiled(kernel.score_positions, kernel.SIGNATURE)
    return MachineCode.score_positions is not None


def load_if_large(nodes: int) -> None:
    """The same in a thread of its own, at the first call with so many nodes. Decisions go on in
    NumPy until the code is there.
    """
    if nodes >= NODES_MIN and not _loading:
        _loading.append(Thread(target=load, name="machine-code", daemon=True))
        _loading[0].start()


def _compiled(function: Callable[..., Any], signature: str) -> Callable[..., Any] | None:
    """The function for arguments of these types only: nothing is compiled amid a decision."""
    try:
        import numba
        from numba.extending import register_jitable
    except ImportError:
        return None
    config: Any = numba.config
    if config.DISABLE_JIT:
        return None
    for part in PARTS:
        register_jitable(part)
    base = config.CACHE_DIR or Path("~/.cache/allotment").expanduser()
    kept_at = Path(base) / _fingerprint([*PARTS, function])
    before, config.CACHE_DIR = config.CACHE_DIR, str(kept_at)
    made: Callable[..., Any]
    try:
        made = numba.njit(signature, cache=_is_writable(kept_at), error_model="numpy")(function)
    finally:
        config.CACHE_DIR = before
    return made


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
        constants = [
            value.tolist() if isinstance(value, np.ndarray) else value
            for value in (*values, *code.co_consts)
            if isinstance(value, (int, str, np.ndarray))
        ]
        content.update(code.co_code + repr(constants).encode())
    return content.hexdigest()[:16]
