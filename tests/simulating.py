"""Small files for `allot simulate`, and a run of it."""

from click.testing import CliRunner, Result

from allotment_cli.main import main

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n{n},64000,262144,4,{'AB'[n % 2]}\n" for n in range(4)
)
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
    + "".join(
        f"p{n},2000,1024,{1 + n % 2},{(300, 1000)[n % 2]},{('', 'A', 'A|B')[n % 3]},{n},{n + 60}\n"
        for n in range(40)
    )
)
CONFIGURATION = """
actions: allocate
tiers:
- plugins:
  - name: deviceshare
    arguments: {deviceshare.SchedulePolicy: spread, deviceshare.ScheduleWeight: 10}
"""


def simulate(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["simulate", *arguments])
    assert result.exit_code == code, result.output
    return result


TEXT = """
lasts: 100h
nodes:
  - prefix: a
    count: 2
    gpus: {model: A100, count: 8, memory_mib: 40960}
pods:
  - name: train
    per_hour: 10
    runs_for: 2h
    priority: 5
    limits: {cpu: 4, volcano.sh/vgpu-number: 2, volcano.sh/vgpu-memory: 8000}
    annotations: {nvidia.com/use-gputype: A100}
  - name: serve
    per_hour: 0.5
    runs_for_mean: 30m
    limits: {cpu: 500m, memory: 1Gi}
  - name: stay
    per_hour: 1
    limits: {cpu: 1}
"""
