"""What more than one reader reads of Kubernetes objects.

Each struct has only those fields that its readers use. That is on purpose: a field that is not
declared is skipped, so a strange value in it does not make the object unreadable, and it costs
little to decode. Code that needs one more field declares it next to its use, or here in a struct of
its own; it is not added to a struct whose other readers do not need it.
"""

import msgspec

from allotment.core.units import natural


class ObjectMeta(msgspec.Struct, rename="camel"):
    """Who an object is, and in which version: fields that the API server itself answers for."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def version(self) -> int:
        """The resourceVersion as a number; 0 where it is none."""
        return natural(self.resource_version) or 0


class AnnotatedMeta(ObjectMeta):
    """The metadata of an object whose annotations are read as well."""

    annotations: dict[str, str] | None = None


class AnnotatedObject(msgspec.Struct):
    """An object of which nothing but identity, version and annotations is read."""

    metadata: AnnotatedMeta


class NodeNameSpec(msgspec.Struct, rename="camel"):
    """Where a pod is placed."""

    node_name: str | None = None


class PlacedPod(msgspec.Struct):
    """A pod as far as its place and what is written on it go."""

    metadata: AnnotatedMeta
    spec: NodeNameSpec


class PodSpecGlimpse(msgspec.Struct, rename="camel"):
    """Whose a pod is to place, and where it is placed: read where the whole spec is not."""

    scheduler_name: str | None = None
    node_name: str | None = None


class PhaseStatus(msgspec.Struct):
    """A status of which only the phase is read."""

    phase: str | None = None
