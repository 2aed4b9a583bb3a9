"""Pods of Jobs as they are sent: names, labels, annotations, environment, plugins."""

import base64
from typing import Any

import pytest

from allotment.core.jobs import plugins
from allotment.core.jobs.model import Job
from allotment.core.jobs.plugins import arguments, ssh
from allotment.core.jobs.pods import build, claims
from tests.unit.test_jobs_examples import at, job, task, template


def made(of: Job, role: str = "worker", index: int = 0) -> dict[str, Any]:
    found = of.spec.role(role)
    assert found is not None
    return build(of, found, index, "j-u")


def env_of(pod: dict[str, Any], kind: str = "containers") -> list[dict[str, str]]:
    return [
        {entry["name"]: entry["value"] for entry in container.get("env", ()) if "value" in entry}
        for container in pod["spec"][kind]
    ]


def test_names_labels_and_annotations() -> None:
    told = {"metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}}, **template()}
    of = job(
        task(replicas=2, template=told),
        queue="training",
        status=at("Pending", version=4, retryCount=2),
        meta={
            "annotations": {"volcano.sh/preemptable": "true", "mine": "no"},
            "labels": {"volcano.sh/revocable-zone": "z"},
        },
    )
    metadata = made(of, index=1)["metadata"]
    assert metadata["name"] == "j-worker-1"
    assert metadata["namespace"] == "n"
    both = {
        "volcano.sh/task-index": "1",
        "volcano.sh/task-spec": "worker",
        "volcano.sh/job-name": "j",
        "volcano.sh/queue-name": "training",
    }
    assert metadata["labels"] == {
        "app": "x",
        **both,
        "volcano.sh/job-namespace": "n",
        "volcano.sh/revocable-zone": "z",
    }
    assert metadata["annotations"] == {
        "note": "y",
        **both,
        "scheduling.k8s.io/group-name": "j-u",
        "volcano.sh/job-version": "4",
        "volcano.sh/job-retry-count": "2",
        "volcano.sh/template-uid": "j-worker",
        "volcano.sh/preemptable": "true",
    }
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", "u", True)


def test_what_the_job_says_gives_way_to_the_template() -> None:
    plain = made(job(task(), priorityClassName="high"))["spec"]
    assert (plain["schedulerName"], plain["priorityClassName"]) == ("volcano", "high")
    own = task(template=template(schedulerName="other", priorityClassName="low"))
    spec = made(job(own, priorityClassName="high"))["spec"]
    assert (spec["schedulerName"], spec["priorityClassName"]) == ("other", "low")


def test_building_a_pod_leaves_the_template_alone() -> None:
    of = job(task(), plugins={"env": [], "svc": [], "ssh": []})
    before = template()
    assert made(of) == made(of)
    assert of.spec.roles[0].template == before


def test_every_container_knows_its_index() -> None:
    told = template(initContainers=[{"name": "first", "image": "i"}])
    told["spec"]["containers"].append({"name": "b", "image": "i", "env": [{"name": "A"}]})
    told["spec"]["containers"][0]["env"] = [{"name": "VC_TASK_INDEX", "value": "wrong"}]
    pod = made(job(task(replicas=3, template=told), plugins={"env": None}), index=2)
    for container in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]:
        entries = [(entry["name"], entry.get("value")) for entry in container["env"]]
        assert entries.count(("VC_TASK_INDEX", "2")) == 1
        assert entries.count(("VK_TASK_INDEX", "2")) == 1
        assert ("VC_TASK_INDEX", "wrong") not in entries
    without = made(job(task()))
    assert env_of(without) == [{}]


def test_pods_find_each_other_by_name() -> None:
    of = job(task("ps", 1), task("data-worker", 2), plugins={"svc": []})
    pod = made(of, "data-worker", 1)
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("j-data-worker-1", "j")
    names = ["VC_PS_HOSTS", "VC_PS_NUM", "VC_DATA_WORKER_HOSTS", "VC_DATA_WORKER_NUM"]
    assert pod["spec"]["containers"][0]["env"] == [
        {"name": name, "valueFrom": {"configMapKeyRef": {"name": "j-svc", "key": name}}}
        for name in names
    ]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [
        {"name": "j-svc", "mountPath": "/etc/volcano"}
    ]
    service, config, policy = plugins.objects(of)
    assert (service["metadata"]["name"], service["spec"]["clusterIP"]) == ("j", "None")
    assert config["metadata"]["name"] == "j-svc"
    assert config["data"] == {
        "ps.host": "j-ps-0.j",
        "VC_PS_HOSTS": "j-ps-0.j",
        "VC_PS_NUM": "1",
        "data_worker.host": "j-data-worker-0.j\nj-data-worker-1.j",
        "VC_DATA_WORKER_HOSTS": "j-data-worker-0.j,j-data-worker-1.j",
        "VC_DATA_WORKER_NUM": "2",
    }
    assert policy["kind"] == "NetworkPolicy"
    assert policy["spec"]["podSelector"] == policy["spec"]["ingress"][0]["from"][0]["podSelector"]
    for body in (service, config, policy):
        assert body["metadata"]["ownerReferences"][0]["uid"] == "u"


def test_switches_of_svc() -> None:
    told = [
        "--publish-not-ready-addresses=true",
        "-disable-network-policy",
        "--inject-hosts-env=false",
    ]
    of = job(task(), plugins={"svc": told})
    service, config = plugins.objects(of)
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert config["kind"] == "ConfigMap"
    assert [entry["name"] for entry in made(of)["spec"]["containers"][0]["env"]] == [
        "VC_WORKER_NUM"
    ]


def test_pods_that_share_a_host_name_are_one_host() -> None:
    of = job(task("w", 3, template=template(hostname="h")), plugins={"svc": []})
    config = plugins.objects(of)[1]["data"]
    assert config == {"w.host": "h.j", "VC_W_HOSTS": "h.j", "VC_W_NUM": "1"}


def test_variables_of_the_hosts_replace_those_of_the_template_and_need_their_config() -> None:
    """Every key that a pod refers to is in the ConfigMap: a kubelet starts no container else."""
    told = template(initContainers=[{"name": "first", "image": "i"}])
    told["spec"]["containers"][0]["env"] = [{"name": "VC_W_NUM", "value": "7"}, {"name": "MINE"}]
    of = job(task("w", template=told), plugins={"svc": []})
    keys = plugins.objects(of)[1]["data"]
    spec = made(of, "w")["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        found = {entry["name"]: entry for entry in container["env"]}
        refers = [name for name, entry in found.items() if "valueFrom" in entry]
        assert refers == ["VC_W_HOSTS", "VC_W_NUM"]
        assert set(refers) <= set(keys)
    assert spec["containers"][0]["env"][0] == {"name": "MINE"}


def test_ssh_mounts_one_secret_for_all() -> None:
    told = ["--ssh-key-file-path=/home/me/.ssh", "--ssh-port", "2222"]
    of = job(task(replicas=2), plugins={"ssh": told, "svc": []})
    secret = ssh.secret(of, ssh.KeyPair("private", "public"), told)
    files = {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}
    assert (secret["metadata"]["name"], files["id_rsa"]) == ("j-ssh", "private")
    assert files["authorized_keys"] == files["id_rsa.pub"] == "public"
    assert "Host j-worker-* !*.*\n  HostName %h.j\n  Port 2222\n" in files["config"]
    assert set(files) == {"id_rsa", "id_rsa.pub", "authorized_keys", "config"}


@pytest.mark.parametrize(
    ("told", "directory"),
    [([], "/root/.ssh"), (["--ssh-key-file-path=/home/me/.ssh"], "/home/me/.ssh")],
)
def test_sshd_accepts_the_keys(told: list[str], directory: str) -> None:
    """Neither the directory that sshd looks at may be writable to others, as the top of a Secret
    volume is, nor may its files be links.
    """
    first = template(initContainers=[{"name": "first", "image": "i"}])
    spec = made(job(task(template=first), plugins={"ssh": told}))["spec"]
    assert spec["volumes"] == [
        {
            "name": "j-ssh",
            "secret": {
                "secretName": "j-ssh",
                "items": [
                    {"key": "id_rsa", "path": ".ssh/id_rsa"},
                    {"key": "id_rsa.pub", "path": ".ssh/id_rsa.pub"},
                    {"key": "authorized_keys", "path": ".ssh/authorized_keys"},
                    {"key": "config", "path": ".ssh/config"},
                ],
                "defaultMode": 0o600,
            },
        }
    ]
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["volumeMounts"] == [
            {"name": "j-ssh", "mountPath": directory, "subPath": ".ssh"}
        ]


def test_the_ssh_configuration_holds_for_any_number_of_pods() -> None:
    """The Secret is made once: nobody may change it later."""
    roles = (
        task("a", replicas=1),
        task("a-1", template={"spec": {"hostname": "h", "subdomain": "s", "containers": []}}),
    )
    small = job(*roles, plugins={"ssh": []})
    large = job(*({**role, "replicas": 9} for role in roles), plugins={"ssh": []})
    text = ssh.config(small, [])
    assert text == ssh.config(large, [])
    assert text.splitlines()[2:] == [
        "Host j-a-1-* !*.*",
        "  HostName h.s",
        "Host j-a-* !*.*",
        "  HostName %h.j",
    ], "the first match counts"


def test_keys_that_the_job_brings() -> None:
    given = ssh.given_keys(["--ssh-private-key=a", "--ssh-public-key=b"])
    assert given == ssh.KeyPair("a", "b")
    assert ssh.given_keys(["--ssh-private-key=a"]) is None


def test_pytorch_tells_who_is_who() -> None:
    of = job(task("master", 1), task("worker", 2), task("logs", 1), plugins={"pytorch": []})
    common = {"MASTER_ADDR": "j-master-0.j", "MASTER_PORT": "23456"}
    ranks = {
        (role, index): env_of(made(of, role, index))[0]
        for role, index in [("master", 0), ("worker", 0), ("worker", 1), ("logs", 0)]
    }
    for found in ranks.values():
        assert common.items() <= found.items()
    assert [ranks[place].get("RANK") for place in ranks] == ["0", "1", "2", None]
    assert ranks[("worker", 1)]["WORLD_SIZE"] == "3"
    assert "svc" in (of.spec.plugins or {}), "names need svc"


def test_pytorch_with_other_names() -> None:
    of = job(
        task("chief", 1),
        task("w", 1),
        plugins={"pytorch": ["--master=chief", "--worker=w", "--port=29500"]},
    )
    found = env_of(made(of, "w"))[0]
    assert (found["MASTER_ADDR"], found["MASTER_PORT"], found["RANK"]) == (
        "j-chief-0.j",
        "29500",
        "1",
    )
    (port,) = made(of, "w")["spec"]["containers"][0]["ports"]
    assert port["containerPort"] == 29500


def test_volumes_of_the_job_are_mounted_into_every_container() -> None:
    volumes = [
        {"mountPath": "/data", "volumeClaimName": "shared"},
        {"mountPath": "/out", "volumeClaim": {"accessModes": ["ReadWriteMany"]}},
    ]
    of = job(task(), volumes=volumes)
    (claim,) = claims(of)
    assert claim["metadata"]["name"] == "j-volume-1"
    assert claim["spec"] == {"accessModes": ["ReadWriteMany"]}
    spec = made(of)["spec"]
    named = [v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"]]
    assert named == ["shared", "j-volume-1"]
    assert [m["mountPath"] for m in spec["containers"][0]["volumeMounts"]] == ["/data", "/out"]


@pytest.mark.parametrize(
    "odd",
    [
        {"metadata": None, "spec": {"containers": [{"name": "a", "env": None}], "volumes": None}},
        {"metadata": [], "spec": {"containers": [{"name": "a", "ports": [7], "env": [1]}]}},
        {"spec": {"containers": [{"name": "a", "resources": None}], "initContainers": {}}},
    ],
)
def test_odd_templates_are_passed_on_to_the_server_to_judge(odd: dict[str, Any]) -> None:
    of = job(task(template=odd), plugins={"env": [], "svc": [], "ssh": [], "pytorch": []})
    assert made(of)["spec"]["containers"][0]["name"] == "a"


def test_arguments_in_all_spellings() -> None:
    assert arguments.read(["--a=1", "-b=2", "--c", "3", "--d", "stray"]) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "stray",
    }
    assert arguments.port({"p": "0"}, "p", 22) == arguments.port({"p": "x"}, "p", 22) == 22
