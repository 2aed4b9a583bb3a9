"""The arguments of plugin `deviceshare` that switch a device family on."""

MEMORY = "deviceshare.GPUSharingEnable"
NUMBER = "deviceshare.GPUNumberEnable"
VGPU = "deviceshare.VGPUEnable"
FAMILIES = {
    VGPU: "vgpu",
    MEMORY: "gpushare",
    NUMBER: "gpushare",
    "deviceshare.AscendHAMiVNPUEnable": "ascend",
    "deviceshare.AscendMindClusterVNPUEnable": "mindcluster",
}
APART = ((MEMORY, NUMBER), (MEMORY, VGPU), (NUMBER, VGPU))
"""Switches of which Volcano lets no two be on: both would keep books of the same cards."""
