"""The binder's settings."""

from typing import Annotated

from msgspec import Meta

from allotment.adapters.service.settings import KubeSettings


class BinderSettings(KubeSettings, frozen=True, kw_only=True):
    """What the binder needs besides what every service does."""

    bind: Annotated[
        bool,
        Meta(
            description="write to the API server; off: decide and record only, without Kubernetes"
        ),
    ] = True
    swap_equal: Annotated[
        bool,
        Meta(
            description="bind pods with equal shares of the same cards to a node without waiting"
            " for each other: faster, but a device plugin may then mix up their cache directories"
        ),
    ] = False
    traceparent: Annotated[
        bool,
        Meta(
            description="write the trace context with which a pod's application can continue the"
            " pod's trace: annotation allotment.dev/traceparent, in the Binding itself"
        ),
    ] = True
    segment_bytes: Annotated[
        int,
        Meta(
            ge=1 << 16,
            description="close a segment of the log, with a checkpoint, once its records hold"
            " so many bytes, and at least as many as the last checkpoint before compression",
        ),
    ] = 256 << 20
    segment_days: Annotated[
        int, Meta(ge=1, description="close a segment of the log at this age at the latest")
    ] = 7
