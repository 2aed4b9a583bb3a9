"""The settings of all parts, each of which is a service's own setting."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from allotment.adapters.service.settings import CommonSettings, KubeSettings
from allotment_binder.settings import BinderSettings
from allotment_filter.settings import FilterSettings
from allotment_scorer.settings import ScorerSettings
from allotment_watcher.settings import WatcherSettings

Role = Literal["watcher", "filter", "scorer", "binder"]
PARTS: dict[Role, type[CommonSettings]] = {
    "watcher": WatcherSettings,
    "filter": FilterSettings,
    "scorer": ScorerSettings,
    "binder": BinderSettings,
}


class RoleSettings(KubeSettings, frozen=True, kw_only=True):
    """What the process needs in addition to what its parts do."""

    roles: Annotated[
        tuple[Role, ...],
        Meta(
            description="the services that run in this process: all, or all but the watcher",
            examples=["watcher,filter,scorer,binder", "filter,scorer,binder"],
        ),
    ] = tuple(PARTS)

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if {*self.roles} | {"watcher"} != {*PARTS} or len({*self.roles}) != len(self.roles):
            raise ValueError(
                f"--roles={','.join(self.roles)}: expected {','.join(PARTS)}, with or without the"
                " watcher: filter, scorer and binder exchange their messages in memory"
            )


_OWN = {field.name: field for part in PARTS.values() for field in msgspec.structs.fields(part)}
SchedulerSettings: type[RoleSettings] = msgspec.defstruct(  # type: ignore[assignment]
    "SchedulerSettings",
    [
        (name, field.type, field.default)
        for name, field in _OWN.items()
        if name not in RoleSettings.__struct_fields__
    ],
    bases=(RoleSettings,),
    frozen=True,
    kw_only=True,
)
"""The settings of the process, with those of all its parts."""


def settings_of(role: Role, whole: RoleSettings) -> CommonSettings:
    """The settings of one part."""
    kind = PARTS[role]
    return kind(**{name: getattr(whole, name) for name in kind.__struct_fields__})
