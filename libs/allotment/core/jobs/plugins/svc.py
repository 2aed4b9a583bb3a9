"""`svc`: pods find each other by name.

A headless Service named like the Job, host names like the pods', lists of hosts in a ConfigMap that
are files in /etc/volcano and variables (`VC_ROLE_HOSTS`, `VC_ROLE_NUM`), and a NetworkPolicy that
lets the Job's pods talk to each other.
"""

from collections.abc import Sequence

from allotment.core.jobs import keys
from allotment.core.jobs.model import Job, JsonObject, Task
from allotment.core.jobs.owners import owned
from allotment.core.jobs.plugins import arguments as flags
from allotment.core.jobs.seats import pod_name
from allotment.core.jobs.templates import add_env_of_config, add_mount, add_volume, every_container

_HOSTS_DIRECTORY = "/etc/volcano"
_PLACEHOLDER_PORT = 1
"""A Service must name a port; a headless one forwards none."""


def dress(pod: JsonObject, job: Job, role: Task, index: int, arguments: Sequence[str]) -> None:
    given = flags.read(arguments)
    spec = pod["spec"]
    spec["hostname"] = spec.get("hostname") or pod["metadata"]["name"]
    spec["subdomain"] = spec.get("subdomain") or job.metadata.name
    volume = _hosts_config(job)
    add_volume(spec, {"name": volume, "configMap": {"name": volume}})
    variables = []
    for task in job.spec.roles:
        if flags.is_set(given, "inject-hosts-env", default=True):
            variables.append(f"VC_{_variable(task.name)}_HOSTS")
        variables.append(f"VC_{_variable(task.name)}_NUM")
    for container in every_container(spec):
        add_mount(container, {"name": volume, "mountPath": _HOSTS_DIRECTORY})
        add_env_of_config(container, volume, variables)


def _hosts_config(job: Job) -> str:
    """The name of the ConfigMap with the lists of hosts."""
    return f"{job.metadata.name}-svc"


def hosts(job: Job, role: Task) -> list[str]:
    """The names by which a role's pods are reached inside the namespace: one if they share it."""
    return list(dict.fromkeys(host(job, role, index) for index in range(role.replicas)))


def host(job: Job, role: Task, index: int) -> str:
    return role_host(job, role, pod_name(job.metadata.name, role.name, index))


def role_host(job: Job, role: Task, pod: str) -> str:
    """The name by which a pod of a role is reached inside the namespace."""
    spec = role.template.get("spec") or {}
    return f"{spec.get('hostname') or pod}.{spec.get('subdomain') or job.metadata.name}"


def objects(job: Job, arguments: Sequence[str]) -> list[JsonObject]:
    """Service, ConfigMap and NetworkPolicy."""
    given = flags.read(arguments)
    found = [
        _service(job, flags.is_set(given, "publish-not-ready-addresses", default=False)),
        _hosts_map(job),
    ]
    if not flags.is_set(given, "disable-network-policy", default=False):
        found.append(_network_policy(job))
    return found


def selector(job: Job) -> JsonObject:
    """The labels of all pods of a Job."""
    return {keys.JOB_NAME: job.metadata.name, keys.JOB_NAMESPACE: job.metadata.namespace}


def _service(job: Job, publish: bool) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned(job, job.metadata.name),
        "spec": {
            "clusterIP": "None",
            "selector": selector(job),
            "publishNotReadyAddresses": publish,
            "ports": [{"name": "placeholder", "port": _PLACEHOLDER_PORT, "protocol": "TCP"}],
        },
    }


def _hosts_map(job: Job) -> JsonObject:
    data: dict[str, str] = {}
    for task in job.spec.roles:
        names = hosts(job, task)
        data[f"{_plain(task.name)}.host"] = "\n".join(names)
        data[f"VC_{_variable(task.name)}_HOSTS"] = ",".join(names)
        data[f"VC_{_variable(task.name)}_NUM"] = str(len(names))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owned(job, _hosts_config(job)),
        "data": data,
    }


def _network_policy(job: Job) -> JsonObject:
    pods = {"matchLabels": selector(job)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": owned(job, job.metadata.name),
        "spec": {
            "podSelector": pods,
            "ingress": [{"from": [{"podSelector": pods}]}],
            "policyTypes": ["Ingress"],
        },
    }


def _variable(role: str) -> str:
    return _plain(role).upper()


def _plain(role: str) -> str:
    """A role's name as Volcano has it in the names of files and variables."""
    return role.replace("-", "_")
