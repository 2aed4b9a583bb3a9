"""Pods of Jobs as they are sent: names, labels, annotations, environment, plugins."""

import base64
from typing import Any

import pytest

from allotment.core.jobs import plugins
from allotment.core.jobs.model import Job
from allotment.core.jobs.plugins import arguments, ssh
from allotment.core.jobs.pods import build, claims
from tests.unit.jobs_parts import at, job, task, template


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


def test_pods_say_which_partition_they_are_in() -> None:
    policy = {"totalPartitions": 2, "partitionSize": 2}
    of = job(task(replicas=4, partitionPolicy=policy), task("odd", 2, partitionPolicy={}))
    partitions = [
        made(of, index=n)["metadata"]["labels"]["volcano.sh/partition-id"] for n in range(4)
    ]
    assert partitions == ["0", "0", "1", "1"]
    assert made(of, "odd", 1)["metadata"]["labels"]["volcano.sh/partition-id"] == "1"
    assert "volcano.sh/partition-id" not in made(job(task()))["metadata"]["labels"]


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


def tf_config(of: Job, role: str, index: int = 0) -> str:
    return env_of(made(of, role, index))[0]["TF_CONFIG"]


def test_tensorflow_tells_the_cluster_and_the_place_in_it() -> None:
    first = template(initContainers=[{"name": "first", "image": "i"}])
    of = job(
        task("worker", 2, template=first),
        task("ps", 1),
        task("chief", 1),
        task("evaluator", 1),
        task("tensorboard", 1),
        plugins={"tensorflow": []},
    )
    cluster = (
        '{"cluster":{"ps":["j-ps-0.j:2222"],"worker":["j-worker-0.j:2222","j-worker-1.j:2222"],'
        '"chief":["j-chief-0.j:2222"],"evaluator":["j-evaluator-0.j:2222"]},'
    )
    assert tf_config(of, "worker", 1) == cluster + '"task":{"type":"worker","index":1}}'
    assert tf_config(of, "ps") == cluster + '"task":{"type":"ps","index":0}}'
    assert tf_config(of, "tensorboard") == cluster + '"task":{"type":"tensorboard","index":0}}'
    (variables,) = env_of(made(of), "initContainers")
    assert "TF_CONFIG" not in variables
    assert of.spec.plugins == {"tensorflow": [], "svc": None}


def test_tensorflow_with_other_names() -> None:
    of = job(
        task("server", 1),
        task("trainer", 1),
        plugins={"tensorflow": ["--ps=server", "--worker", "trainer", "--port=5000"]},
    )
    assert tf_config(of, "trainer") == (
        '{"cluster":{"ps":["j-server-0.j:5000"],"worker":["j-trainer-0.j:5000"]},'
        '"task":{"type":"worker","index":0}}'
    )


def test_tensorflow_on_one_pod_needs_no_cluster() -> None:
    assert env_of(made(job(task(), plugins={"tensorflow": []}))) == [{}]


def test_mpi_tells_the_master_its_workers() -> None:
    first = template(initContainers=[{"name": "first", "image": "i"}])
    first["spec"]["containers"][0]["ports"] = [{"name": "ssh", "containerPort": 22}]
    of = job(task("master", 1, template=first), task("worker", 2), plugins={"mpi": None})
    assert of.spec.plugins == {"mpi": None, "svc": None, "ssh": None}
    master, worker = made(of, "master"), made(of, "worker", 1)
    hosts = {"MPI_HOST": "j-worker-0.j,j-worker-1.j"}
    assert env_of(master) == env_of(master, "initContainers") == [hosts]
    assert env_of(worker) == [{}]
    port = {"name": "mpijob-port", "containerPort": 22, "protocol": "TCP"}
    assert master["spec"]["containers"][0]["ports"] == [{"name": "ssh", "containerPort": 22}]
    assert master["spec"]["initContainers"][0]["ports"] == [port]
    assert worker["spec"]["containers"][0]["ports"] == [port]
    volumes = [volume["name"] for volume in worker["spec"]["volumes"]]
    assert volumes == ["j-svc", "j-ssh"]


def test_mpi_with_other_names() -> None:
    told = ["--master=launcher", "--worker=node", "--port=2022"]
    of = job(task("launcher", 1), task("node", 1), plugins={"mpi": told})
    pod = made(of, "launcher")
    assert env_of(pod) == [{"MPI_HOST": "j-node-0.j"}]
    assert [port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]] == [2022]


def ray_task(name: str, replicas: int = 1, container: str = "") -> dict[str, Any]:
    told = template()
    told["spec"]["containers"] = [
        {"name": container or name, "image": "i", "command": ["sleep"]},
        {"name": "side", "image": "i"},
    ]
    return task(name, replicas, template=told)


def test_ray_starts_a_head_and_workers_that_join_it() -> None:
    of = job(ray_task("head"), ray_task("worker", 2), plugins={"ray": []})
    assert of.spec.plugins == {"ray": [], "svc": None}
    head, side = made(of, "head")["spec"]["containers"]
    assert head["command"] == [
        "sh",
        "-c",
        "ray start --head --block --dashboard-host=0.0.0.0 --port=6379 --dashboard-port=8265"
        " --ray-client-server-port=10001",
    ]
    assert head["ports"] == [
        {"name": "gcs", "containerPort": 6379, "protocol": "TCP"},
        {"name": "dashboard", "containerPort": 8265, "protocol": "TCP"},
        {"name": "client-server", "containerPort": 10001, "protocol": "TCP"},
    ]
    assert ("command" in side, "ports" in side) == (False, False)
    worker = made(of, "worker", 1)["spec"]["containers"][0]
    assert worker["command"] == ["sh", "-c", "ray start --block --address=j-head-0.j:6379"]
    assert "ports" not in worker
    *_, service = plugins.objects(of)
    assert service == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**plugins.objects(of)[0]["metadata"], "name": "j-head-svc"},
        "spec": {
            "selector": {
                "volcano.sh/job-name": "j",
                "volcano.sh/job-namespace": "n",
                "volcano.sh/task-spec": "head",
            },
            "ports": [
                {"name": "gcs", "port": 6379, "targetPort": 6379, "protocol": "TCP"},
                {"name": "dashboard", "port": 8265, "targetPort": 8265, "protocol": "TCP"},
                {"name": "client-server", "port": 10001, "targetPort": 10001, "protocol": "TCP"},
            ],
        },
    }


def test_ray_with_other_names() -> None:
    told = ["--head=h", "--headContainer=main", "--worker=w", "--workerContainer=main"]
    told += ["--port=1", "--dashboardPort=2", "--clientPort=3"]
    of = job(ray_task("h", container="main"), ray_task("w", 1, "main"), plugins={"ray": told})
    head = made(of, "h")["spec"]["containers"][0]
    assert head["command"][2].endswith("--port=1 --dashboard-port=2 --ray-client-server-port=3")
    worker = made(of, "w")["spec"]["containers"][0]
    assert worker["command"][2] == "ray start --block --address=j-h-0.j:1"


def test_hcclrank_ranks_masters_before_workers() -> None:
    of = job(task("master", 2), task("worker", 2), task("logs", 1), plugins={"hcclrank": []})
    ranks = {
        (role, index): made(of, role, index)["metadata"]["annotations"].get("hccl/rankIndex")
        for role, index in [("master", 1), ("worker", 0), ("worker", 1), ("logs", 0)]
    }
    assert list(ranks.values()) == ["1", "2", "3", None]
    named = job(task("a", 1), task("b", 1), plugins={"hcclrank": ["--master=a", "--worker=b"]})
    assert made(named, "b")["metadata"]["annotations"]["hccl/rankIndex"] == "1"


def test_hcclrank_keeps_a_rank_that_the_pod_has() -> None:
    told = template()
    told["spec"]["containers"][0]["env"] = [{"name": "RANK", "value": "7"}]
    of = job(task(template=told), plugins={"hcclrank": None})
    assert made(of)["metadata"]["annotations"]["hccl/rankIndex"] == "7"
    marked = {"metadata": {"annotations": {"hccl/rankIndex": "9"}}, **told}
    of = job(task(template=marked), plugins={"hcclrank": None})
    assert made(of)["metadata"]["annotations"]["hccl/rankIndex"] == "9"
    roles = (task("chief", 1), task("w", 1))
    told_names = ["--master=chief", "--worker=w"]
    of = job(*roles, plugins={"hcclrank": [], "pytorch": told_names})
    assert made(of, "w")["metadata"]["annotations"]["hccl/rankIndex"] == "1", "pytorch's rank"


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
    of = job(task(template=odd), plugins=dict.fromkeys(plugins.NAMES))
    assert made(of)["spec"]["containers"][0]["name"] == "a"


def test_arguments_in_all_spellings() -> None:
    assert arguments.read(["--a=1", "-b=2", "--c", "3", "--d", "stray"]) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "stray",
    }
    assert arguments.port({"p": "0"}, "p", 22) == arguments.port({"p": "x"}, "p", 22) == 22
