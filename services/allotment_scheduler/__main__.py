"""Runs the services of `--roles` as parts of one process; see the package."""

import sys
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

import allotment_binder.__main__ as binder
import allotment_filter.__main__ as filtering
import allotment_scorer.__main__ as scorer
import allotment_watcher.__main__ as watcher
from allotment.adapters.service.service import ServiceContext, start_service
from allotment.adapters.service.world import Part, Together
from allotment_scheduler.settings import Role, RoleSettings, SchedulerSettings, settings_of

_RUN: dict[Role, Callable[[Any], Coroutine[Any, Any, None]]] = {
    "watcher": watcher.run,
    "filter": filtering.run,
    "scorer": scorer.run,
    "binder": binder.run,
}


async def run(ctx: ServiceContext[RoleSettings]) -> None:
    """All parts, until they are asked to stop. An error of one ends all."""
    settings = ctx.settings
    names = {role: f"allotment-{role}" for role in settings.roles}
    together = Together(ctx, tuple(names.values()))
    async with anyio.create_task_group() as group:
        for role, name in names.items():
            part = Part(together, ctx, name, settings_of(role, settings))
            group.start_soon(_RUN[role], part, name=name)
        await together.run()


def main() -> None:
    sys.exit(
        start_service(
            *("allotment-scheduler", SchedulerSettings, run),
            "Watches, filters, scores and binds in one process.",
            gives_way=False,  # as the binder
        )
    )


if __name__ == "__main__":
    main()
