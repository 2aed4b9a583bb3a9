"""`ssh`: pods log into each other without a password.

One pair of keys for the whole Job in a Secret, mounted where ssh looks for it, with a configuration
that names every pod. The caller creates the keys once, because this code has no randomness.

sshd (StrictModes, its default) rejects keys in a directory that others may write to, and the top
directory of a Secret volume is one (mode 1777), with links instead of files. So the files are
projected into the directory `.ssh` of the volume, and only that is mounted: it has mode 0755 and
holds plain files.
"""

import base64
from collections.abc import Sequence

import msgspec

from allotment.core.jobs.model import Job, JsonObject, Task
from allotment.core.jobs.owners import owned
from allotment.core.jobs.plugins import arguments as flags
from allotment.core.jobs.plugins.svc import role_host
from allotment.core.jobs.seats import pod_prefix
from allotment.core.jobs.templates import add_mount, add_volume, every_container

_DIRECTORY = "/root/.ssh"
_PORT = 22
_SUBDIRECTORY = ".ssh"
_PRIVATE_MODE = 0o600
_FILES = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")


class KeyPair(msgspec.Struct, frozen=True):
    """A private key (PEM) and its public key (OpenSSH), as texts."""

    private: str
    public: str


def given_keys(arguments: Sequence[str]) -> KeyPair | None:
    """The keys that the Job brings itself; None if they must be created."""
    given = flags.read(arguments)
    private, public = given.get("ssh-private-key"), given.get("ssh-public-key")
    return KeyPair(private, public) if private and public else None


def secret_name(job: Job) -> str:
    return f"{job.metadata.name}-ssh"


def secret(job: Job, pair: KeyPair, arguments: Sequence[str]) -> JsonObject:
    """The Secret with the keys and the list of hosts."""
    files = {
        "id_rsa": pair.private,
        "id_rsa.pub": pair.public,
        "authorized_keys": pair.public,
        "config": config(job, arguments),
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": owned(job, secret_name(job)),
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in files.items()},
    }


def config(job: Job, arguments: Sequence[str]) -> str:
    """An ssh configuration: no prompts, and every pod by its short name.

    It names roles and not pods, so that it holds for any number of replicas: the Secret is made
    once. The first match counts, so the longer of two names goes first; names with a dot are not
    short names.
    """
    port = flags.port(flags.read(arguments), "ssh-port", _PORT)
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for task in sorted(job.spec.roles, key=lambda role: (-len(role.name), role.name)):
        lines.append(f"Host {pod_prefix(job.metadata.name, task.name)}* !*.*")
        lines.append(f"  HostName {role_host(job, task, '%h')}")
        if port != _PORT:
            lines.append(f"  Port {port}")
    return "\n".join(lines) + "\n"


def dress(pod: JsonObject, job: Job, role: Task, index: int, arguments: Sequence[str]) -> None:
    directory = flags.read(arguments).get("ssh-key-file-path", _DIRECTORY)
    name = secret_name(job)
    volume = {
        "secretName": name,
        "items": [{"key": file, "path": f"{_SUBDIRECTORY}/{file}"} for file in _FILES],
        "defaultMode": _PRIVATE_MODE,
    }
    add_volume(pod["spec"], {"name": name, "secret": volume})
    for container in every_container(pod["spec"]):
        add_mount(container, {"name": name, "mountPath": directory, "subPath": _SUBDIRECTORY})
