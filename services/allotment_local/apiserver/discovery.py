"""Discovery: which groups, versions and resources there are, in both forms clients ask for."""

from typing import NamedTuple

from allotment_local.apiserver.errors import JsonObject, no_such_path
from allotment_local.apiserver.registry import Registry
from allotment_local.apiserver.resources import CONTAINER_ACCESS, Resource

AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


class Virtual(NamedTuple):
    """A resource one can only create: the answer is all there is of it."""

    group: str
    plural: str
    kind: str
    namespaced: bool = False


VIRTUALS = (
    Virtual("", "bindings", "Binding", namespaced=True),
    Virtual("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    Virtual("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    Virtual("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
)
# subresource -> (kind, group, version, verbs); of the resource's own kind where not named.
_SUBRESOURCES = {
    "binding": ("Binding", "", "v1", ["create"]),
    "eviction": ("Eviction", "policy", "v1", ["create"]),
    **{name: ("Pod", "", "v1", ["create", "get"]) for name in CONTAINER_ACCESS},
    "finalize": ("Namespace", "", "v1", ["update"]),
}


def _subresource(resource: Resource, name: str) -> tuple[str, str, str, list[str]]:
    own = (resource.kind, resource.group, resource.version, ["get", "patch", "update"])
    return _SUBRESOURCES.get(name, own)


def _groups(registry: Registry) -> dict[str, dict[str, list[Resource]]]:
    groups = registry.groups()
    for virtual in VIRTUALS:
        groups.setdefault(virtual.group, {}).setdefault("v1", [])
    return groups


def aggregated(registry: Registry, *, core: bool) -> JsonObject:
    """APIGroupDiscoveryList: of the core group for /api, of all others for /apis."""
    items = []
    for group, versions in _groups(registry).items():
        if (group == "") is not core:
            continue
        shown = [
            {
                "version": version,
                "freshness": "Current",
                "resources": [_aggregated_resource(r) for r in resources]
                + [
                    _aggregated_virtual(v) for v in VIRTUALS if v.group == group and version == "v1"
                ],
            }
            for version, resources in versions.items()
        ]
        items.append({"metadata": {"name": group, "creationTimestamp": None}, "versions": shown})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_resource(resource: Resource) -> JsonObject:
    shown: JsonObject = {
        "resource": resource.plural,
        "responseKind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": VERBS,
    }
    if resource.short_names:
        shown["shortNames"] = list(resource.short_names)
    if resource.categories:
        shown["categories"] = list(resource.categories)
    if resource.subresources:
        shown["subresources"] = []
        for name in resource.subresources:
            kind, group, version, verbs = _subresource(resource, name)
            reply = {"group": group, "version": version, "kind": kind}
            shown["subresources"].append(
                {"subresource": name, "responseKind": reply, "verbs": verbs}
            )
    return shown


def _aggregated_virtual(virtual: Virtual) -> JsonObject:
    return {
        "resource": virtual.plural,
        "responseKind": {"group": virtual.group, "version": "v1", "kind": virtual.kind},
        "scope": "Namespaced" if virtual.namespaced else "Cluster",
        "singularResource": virtual.kind.lower(),
        "verbs": ["create"],
    }


def api_versions() -> JsonObject:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group(name: str, versions: list[str]) -> JsonObject:
    shown = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": shown, "preferredVersion": shown[0]}


def group_list(registry: Registry) -> JsonObject:
    groups = [_group(name, list(versions)) for name, versions in _groups(registry).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def one_group(registry: Registry, name: str) -> JsonObject:
    versions = _groups(registry).get(name)
    if not versions or not name:
        raise no_such_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, list(versions))}


def resource_list(registry: Registry, group: str, version: str) -> JsonObject:
    """APIResourceList of one group version. ApiError 404 when it is not served."""
    resources = _groups(registry).get(group, {}).get(version)
    if resources is None:
        raise no_such_path()
    shown: list[JsonObject] = []
    for resource in resources:
        shown.append(
            {
                "name": resource.plural,
                "singularName": resource.singular,
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": VERBS,
                "shortNames": list(resource.short_names),
                "categories": list(resource.categories),
            }
        )
        for name in resource.subresources:
            kind, kind_group, kind_version, verbs = _subresource(resource, name)
            shown.append(
                {
                    "name": f"{resource.plural}/{name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                    "group": kind_group,
                    "version": kind_version,
                    "kind": kind,
                    "verbs": verbs,
                }
            )
    shown.extend(
        {
            "name": virtual.plural,
            "singularName": virtual.kind.lower(),
            "namespaced": virtual.namespaced,
            "kind": virtual.kind,
            "verbs": ["create"],
        }
        for virtual in VIRTUALS
        if virtual.group == group and version == "v1"
    )
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": shown,
    }
