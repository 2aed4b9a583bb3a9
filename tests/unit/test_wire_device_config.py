"""The device ConfigMaps: what is read, what is said, what is refused."""

import pytest

from allotment_proto.device_config import AscendTemplate, NodeConfig
from allotment_proto.facts import Profile
from allotment_proto.volcano import device_config, keys, mig_tables

SHIPPED = """
nvidia:
  resourceCountName: volcano.sh/vgpu-number
  resourceMemoryName: volcano.sh/vgpu-memory
  resourceMemoryPercentageName: volcano.sh/vgpu-memory-percentage
  resourceCoreName: volcano.sh/vgpu-cores
  overwriteEnv: false
  defaultMemory: 0
  defaultCores: 0
  defaultGPUNum: 1
  deviceSplitCount: 10
  deviceMemoryScaling: 1
  deviceCoreScaling: 1
  gpuMemoryFactor: 2
  knownMigGeometries:
  - models: [ "A30" ]
    allowedGeometries:
      - group: group1
        geometries:
        - {name: 1g.6gb, memory: 6144, count: 4}
      - group: group2
        geometries:
        - {name: 2g.12gb, memory: 12288, count: 2}
  - models: [ "A100-SXM4-40GB", "A100-40GB-PCIe", "A100-PCIE-40GB", "A100-SXM4-40GB" ]
    allowedGeometries:
      - group: group2
        geometries:
        - {name: 2g.10gb, memory: 10240, count: 3}
        - {name: 1g.5gb, memory: 5120, count: 1}
"""
CHIPS = """
  - chipName: 910B3
    commonWord: Ascend910B3
    resourceName: huawei.com/Ascend910B3
    resourceMemoryName: huawei.com/Ascend910B3-memory
    memoryAllocatable: 65536
    memoryCapacity: 65536
    aiCore: 20
    aiCPU: 7
    templates:
      - {name: vir10_3c_32g, memory: 32768, aiCore: 10, aiCPU: 3}
      - {name: vir05_1c_16g, memory: 16384, aiCore: 5, aiCPU: 1}
"""


def test_the_shipped_file() -> None:
    parsed = device_config.parse(SHIPPED, "f")
    assert parsed.config is not None
    assert (parsed.problems, parsed.warnings) == ((), ())
    nvidia = parsed.config.nvidia
    assert nvidia.count_name == keys.VGPU_NUMBER
    assert (nvidia.split_count, nvidia.memory_factor, nvidia.default_count) == (10, 2, 1)
    assert (nvidia.memory_scaling_milli, nvidia.cores_scaling_milli) == (1000, 1000)
    assert nvidia.mig[1].models == ("A100-SXM4-40GB", "A100-40GB-PCIe", "A100-PCIE-40GB")
    (geometry,) = device_config.geometries_for(parsed.config, "NVIDIA-NVIDIA A100-PCIE-40GB")
    assert geometry.profiles == (Profile("2g.10gb", 5120, 3), Profile("1g.5gb", 2560, 1))
    assert parsed.config.ascend == (), "a file that is there is not completed"


@pytest.mark.parametrize(
    ("text", "soft"),
    [
        ("vnpus:" + CHIPS, False),
        ("vnpus:\n  hamiVnpuCore: true\n  configs:" + CHIPS, True),
        ("vnpus:\n  configs:" + CHIPS, False),
    ],
)
def test_both_spellings_of_vnpus(text: str, soft: bool) -> None:
    parsed = device_config.parse(text, "f")
    assert parsed.config is not None, parsed.problems
    assert parsed.config.ascend_soft_slicing is soft
    (chip,) = parsed.config.ascend
    assert chip.common_word == "Ascend910B3"
    assert chip.resource_core_name == "huawei.com/Ascend910B3-core"
    assert chip.templates == (
        AscendTemplate("vir05_1c_16g", 16384, 5, 1),
        AscendTemplate("vir10_3c_32g", 32768, 10, 3),
    ), "by memory"
    assert parsed.config.nvidia.count_name == keys.VGPU_NUMBER


def test_an_empty_list_of_chips_and_a_chip_without_names() -> None:
    empty = device_config.parse("vnpus: {hamiVnpuCore: true, configs: []}", "f").config
    assert empty is not None
    assert (empty.ascend, empty.ascend_soft_slicing) == ((), True)
    text = "vnpus: [{chipName: 910A, commonWord: Ascend910A, memoryAllocatable: 32768}]"
    parsed = device_config.parse(text, "f").config
    assert parsed is not None
    (chip,) = parsed.ascend
    assert chip.resource_name == "huawei.com/Ascend910A"
    assert chip.resource_memory_name == "huawei.com/Ascend910A-memory"
    assert chip.memory_capacity_mib == 32768


@pytest.mark.parametrize("text", ["", "nvidia:", "{}", "nvidia: {gpuMemoryFactor: 0}"])
def test_what_is_not_said_is_usual(text: str) -> None:
    parsed = device_config.parse(text, "f")
    assert parsed.config is not None
    nvidia = parsed.config.nvidia
    assert nvidia.memory_percentage_name == keys.VGPU_MEMORY_PERCENTAGE
    assert (nvidia.memory_factor, nvidia.default_count, nvidia.split_count) == (1, 1, 0)
    assert nvidia.mig == ()


def test_over_commit_and_renamed_resources() -> None:
    text = """
    nvidia:
      resourceCountName: nvidia.com/gpu
      resourceCoreName: ""
      deviceMemoryScaling: 1.5
      deviceCoreScaling: 2
      defaultCores: 10
      defaultMemory: 4000
      defaultGPUNum: 2
      disableCoreLimit: true
    """
    parsed = device_config.parse(text, "f")
    assert parsed.config is not None
    nvidia = parsed.config.nvidia
    assert (nvidia.count_name, nvidia.cores_name) == ("nvidia.com/gpu", "")
    assert (nvidia.memory_scaling_milli, nvidia.cores_scaling_milli) == (1500, 2000)
    assert (nvidia.default_cores_pct, nvidia.default_memory, nvidia.default_count) == (10, 4000, 2)
    assert nvidia.disable_core_limit
    assert [w.code for w in parsed.warnings] == ["ForeignName", "EmptyName"]


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("a: [", "f: line 1, column 5", "is not YAML"),
        ("- 1", "f", "wanted: a mapping"),
        ("nvidia: 3", "f: nvidia", "wanted: a mapping"),
        ("nvidia: {gpuMemoryFactor: -1}", "f: nvidia.gpuMemoryFactor", "is -1; wanted: a whole"),
        ("nvidia: {gpuMemoryFactor: many}", "f: nvidia.gpuMemoryFactor", "is 'many'"),
        ("nvidia: {defaultCores: 101}", "f: nvidia.defaultCores", "from 0 to 100"),
        ("nvidia: {deviceCoreScaling: -1}", "f: nvidia.deviceCoreScaling", "a number from 0"),
        ("nvidia: {deviceCoreScaling: .nan}", "f: nvidia.deviceCoreScaling", "is nan"),
        ("nvidia: {deviceCoreScaling: '1'}", "f: nvidia.deviceCoreScaling", "is '1'"),
        ("nvidia: {disableCoreLimit: 1}", "f: nvidia.disableCoreLimit", "true or false"),
        ("nvidia: {resourceCountName: gpu}", "f: nvidia.resourceCountName", "a resource name like"),
        (
            "nvidia: {resourceCoreName: volcano.sh/vgpu-memory}",
            "f: nvidia.resourceCoreName",
            "which is resourceMemoryName already",
        ),
        ("nvidia: {knownMigGeometries: {}}", "f: nvidia.knownMigGeometries", "wanted: a list"),
        (
            "nvidia: {knownMigGeometries: [{models: [A], allowedGeometries: [[{name: 1g}]]}]}",
            "f: nvidia.knownMigGeometries[0].allowedGeometries[0]",
            "a mapping with group and geometries",
        ),
        (
            "nvidia: {knownMigGeometries: [{models: [A], allowedGeometries: "
            "[{group: my-group, geometries: [{name: 1g, memory: 1, count: 1}]}]}]}",
            "f: nvidia.knownMigGeometries[0].allowedGeometries[0].group",
            "no '-'",
        ),
        (
            "nvidia: {gpuMemoryFactor: 9, knownMigGeometries: [{models: [A], allowedGeometries: "
            "[{group: g, geometries: [{name: 1g, memory: 8, count: 1}]}]}]}",
            "f: nvidia.knownMigGeometries[0].allowedGeometries",
            "less than one unit",
        ),
        ("vnpus: [{memoryAllocatable: 1}]", "f: vnpus[0].commonWord", "a word like Ascend310P"),
        ("vnpus: [{commonWord: A}]", "f: vnpus[0].memoryAllocatable", "above 0"),
        (
            "vnpus: [{commonWord: A, memoryAllocatable: 2, memoryCapacity: 1}]",
            "f: vnpus[0].memoryCapacity",
            "at least memoryAllocatable (2)",
        ),
        (
            "vnpus: [{commonWord: A, memoryAllocatable: 2, templates: [{name: v, memory: 0}]}]",
            "f: vnpus[0].templates[0].memory",
            "MiB above 0",
        ),
    ],
)
def test_faults_name_place_and_value(text: str, place: str, says: str) -> None:
    parsed = device_config.parse(text, "f")
    assert parsed.config is None
    messages = {problem.place: problem.message for problem in parsed.problems}
    assert says in messages[place]


def test_one_chip_is_configured_once() -> None:
    text = "vnpus: [{commonWord: A, memoryAllocatable: 2}, {commonWord: A, memoryAllocatable: 2}]"
    parsed = device_config.parse(text, "f")
    assert [p.place for p in parsed.problems] == ["f: vnpus[1].commonWord"]


def test_what_has_no_effect_is_said() -> None:
    text = """
    cambricon: {}
    nvidia: {overwriteEnv: true, deviceSplitcount: 3, 1: 2}
    vnpus: [{commonWord: A, memoryAllocatable: 2, resourceCoreName: huawei.com/other}]
    """
    parsed = device_config.parse(text, "f")
    assert parsed.config is not None
    assert {(w.code, w.place) for w in parsed.warnings} == {
        ("UnknownKey", "f: cambricon"),
        ("UnknownKey", "f: nvidia.deviceSplitcount"),
        ("UnknownKey", "f: nvidia"),
        ("NoEffect", "f: nvidia.overwriteEnv"),
        ("NoEffect", "f: vnpus[0].resourceCoreName"),
    }


def test_the_longest_part_of_a_model_decides() -> None:
    entry = "{{models: [{}], allowedGeometries: [{{group: {}, geometries: [{}]}}]}}"
    piece = "{name: 1g, memory: 8, count: 1}"
    entries = [entry.format(m, g, piece) for m, g in (("H20", "a"), ("H200", "b"), ("H20", "c"))]
    text = "nvidia: {knownMigGeometries: [" + ", ".join(entries) + "]}"
    parsed = device_config.parse(text, "f")
    assert parsed.config is not None, parsed.problems
    assert [w.code for w in parsed.warnings] == ["RepeatedModel"]
    names = [
        [g.name for g in device_config.geometries_for(parsed.config, model)]
        for model in ("NVIDIA-NVIDIA H200", "NVIDIA-NVIDIA H20", "NVIDIA-NVIDIA H10")
    ]
    assert names == [["b"], ["a"], []]


def test_nodes() -> None:
    text = """{"nodeconfig": [
        {"name": "a", "operatingMode": "mig", "migstrategy": "mixed",
         "filterdevices": {"uuid": ["GPU-2", "GPU-1"], "index": [3, 0.0]}},
        {"name": "b", "devicememoryscaling": 1.8, "devicecorescaling": 0.5, "devicesplitcount": 4}
    ]}"""
    parsed = device_config.parse_nodes(text, "n")
    assert parsed.nodes == (
        NodeConfig("a", mode="mig", hidden_ids=("GPU-1", "GPU-2"), hidden_indexes=(0, 3)),
        NodeConfig("b", split_count=4, memory_scaling_milli=1800, cores_scaling_milli=500),
    )
    assert [w.place for w in parsed.warnings] == ["n: nodeconfig[0].migstrategy"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", "n"),
        ('{"nodeconfig": {}}', "n: nodeconfig"),
        ('{"nodeconfig": [{}]}', "n: nodeconfig[0].name"),
        ('{"nodeconfig": [{"name": "a"}, {"name": "a"}]}', "n: nodeconfig[1].name"),
        ('{"nodeconfig": [{"name": "a", "operatingmode": "x"}]}', "n: nodeconfig[0].operatingmode"),
        ('{"nodeconfig": [{"name": "a", "devicecorescaling": 1e999999999}]}',
         "n: nodeconfig[0].devicecorescaling"),
        ('{"nodeconfig": [{"name": "a", "filterdevices": {"index": [-1]}}]}',
         "n: nodeconfig[0].filterdevices.index[0]"),
        ('{"nodeconfig": [{"name": "a", "devicecorescaling": NaN}]}', "n"),
    ],
)  # fmt: skip
def test_faults_of_node_configurations(text: str, place: str) -> None:
    parsed = device_config.parse_nodes(text, "n")
    assert parsed.nodes is None
    assert [problem.place for problem in parsed.problems] == [place]


def test_both_config_maps() -> None:
    assert device_config.parse_config_maps(None, None).config == device_config.default()
    assert device_config.default().nvidia.mig == mig_tables.DEFAULT
    node = {keys.NODE_CONFIG_KEY: '{"nodeconfig": [{"name": "a"}]}'}
    both = device_config.parse_config_maps({keys.DEVICE_CONFIG_KEY: "nvidia:"}, node).config
    assert both is not None
    assert both.nodes == (NodeConfig("a"),)
    parsed = device_config.parse_config_maps({"other": ""}, {"other": ""})
    assert parsed.config is None
    assert [p.message for p in parsed.problems] == [
        "has no key device-config.yaml",
        "has no key config.json",
    ]
