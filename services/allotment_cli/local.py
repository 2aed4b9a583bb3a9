"""The running local mode, as `allotment_local` tells of it; imported only where it is needed."""

from pathlib import Path
from typing import Any


async def status(home: Path) -> dict[str, Any]:
    """What runs at this home: `ready`, `problems`, and every address."""
    from allotment_local import orchestrator

    return await orchestrator.status(home)
