"""The controller's settings."""

from typing import Annotated

from msgspec import Meta

from allotment.adapters.service.settings import KubeSettings

VOLCANO = "volcano"


class ControllerSettings(KubeSettings, frozen=True, kw_only=True):
    """What the controller needs in addition to what every service does."""

    scheduler_names: Annotated[
        tuple[str, ...],
        Meta(
            description="names in spec.schedulerName that Allotment answers to; the watcher's",
            min_length=1,
            examples=["allotment", "allotment,volcano"],
        ),
    ] = ("allotment",)
    admit: Annotated[
        bool,
        Meta(
            description="let PodGroups of open queues have their pods, and keep their phases;"
            " for clusters whose scheduler does not: Allotment's filter and binder do"
        ),
    ] = False
    group_pods: Annotated[
        bool, Meta(description="make PodGroups for our pods that have none and no Job")
    ] = True
    group_lone_pods: Annotated[
        bool,
        Meta(
            description="make PodGroups for lone pods as well: those without an owner, a queue or"
            " anything else that a PodGroup would say of them. They are scheduled the same without,"
            " at less than half the requests; for clusters where something reads their PodGroups"
        ),
    ] = False
    step_aside: Annotated[
        bool, Meta(description="do nothing while Volcano's own controllers run in the cluster")
    ] = True
    volcano_namespace: Annotated[
        str, Meta(description="where Volcano's controllers would run", min_length=1)
    ] = "volcano-system"
    job_workers: Annotated[
        int, Meta(description="objects worked on at once; one object never twice", ge=1, le=256)
    ] = 16

    @property
    def default_scheduler(self) -> str:
        """Who schedules a Job that does not say: volcano, if the cluster answers to it."""
        return VOLCANO if VOLCANO in self.scheduler_names else self.scheduler_names[0]
