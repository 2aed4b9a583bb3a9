"""The built-in MIG tables: how known cards can be cut, and how large the pieces are.

For clusters without a device ConfigMap. A configured table replaces all of this.

Group names `group1` to `group4` and their order are those of the table that ships with the device
plugin (`volcano-vgpu-device-plugin.yml`, deviceshare 8.3), for every model; the groups after them
are mixed geometries. Within a group larger profiles come first, because a driver numbers GPU
instances by size (4g and 3g from id 1, 2g from 3, 1g from 7: `nvidia-smi mig -lgi`, `-L`).
Which combinations exist is in NVIDIA's MIG user guide, "Supported MIG profiles".

Where the sizes come from (MiB; `nvidia-smi mig -lgip` shows NVML's number in GiB rounded to two
digits, so 9.62 is 9.625 GiB = 9856 MiB):

===================  =====================================================================
A30, A100 40GB       as shipped, which is nominal: NVML reports 5952/11968/24000 for the A30
                     and 4864/9984/20096/40448 for the A100 40GB
A100 80GB            as shipped, and as NVML reports it (9.50/19.50/39.25/79.00 GiB)
H100 80GB            listings of the SXM card: 9.75/19.62/39.50/79.25 GiB; PCIe taken to be the same
H100 NVL 94GB        listing of H100 NVL (OpenNebula's documentation): 10.62/21.50/46.12/92.62
H100 96GB (GH200)    listing of a GH200 480GB: 11.00/23.00/46.50/93.00 GiB
H200                 NVIDIA mig-parted issue 120: 16.00/32.25/69.50/139.75 GiB
H20 96GB             1g from a listing (11.75 GiB); the rest *derived*, see below
H20 141GB (H20-3e)   *derived*: profile names as H200's in NVIDIA's vGPU documentation, so its sizes
B200                 1g and 2g from NVIDIA mig-parted pull request 187 (20.50/44.25 GiB; an earlier
                     driver gave 22.00 to 1g); the rest *derived*, see below
RTX PRO 6000         listings of the Blackwell Server Edition: 23.12/46.50/93.38 GiB (23.62/47.38/95
                     with another driver)
===================  =====================================================================

Sizes vary a little with driver and ECC. Where listings differ the smaller number stands here, and
*derived* is twice the next smaller profile's, which the real one is never below: so a pod may get
more than it asked for, and never less.
"""

from allotment_proto.device_config import MigModel
from allotment_proto.facts import Geometry, Profile

_Piece = tuple[str, int]
"""A profile's name and memory in MiB."""


def _cut(name: str, *pieces: tuple[_Piece, int]) -> Geometry:
    return Geometry(name, tuple(Profile(*piece, count) for piece, count in pieces))


def _sevenths(
    models: tuple[str, ...], one: _Piece, two: _Piece, three: _Piece, seven: _Piece
) -> MigModel:
    """Cards of 7 compute and 8 memory slices; 3g takes 4 of the latter."""
    return MigModel(
        models,
        (
            _cut("group1", (one, 7)),
            _cut("group2", (two, 3), (one, 1)),
            _cut("group3", (three, 2)),
            _cut("group4", (seven, 1)),
            _cut("group5", (three, 1), (two, 1), (one, 2)),
            _cut("group6", (three, 1), (two, 2)),
            _cut("group7", (three, 1), (one, 4)),
            _cut("group8", (two, 2), (one, 3)),
        ),
    )


def _quarters(models: tuple[str, ...], one: _Piece, two: _Piece, four: _Piece) -> MigModel:
    """Cards of 4 compute and 4 memory slices."""
    return MigModel(
        models,
        (
            _cut("group1", (one, 4)),
            _cut("group2", (two, 2)),
            _cut("group3", (four, 1)),
            _cut("group4", (two, 1), (one, 2)),
        ),
    )


DEFAULT: tuple[MigModel, ...] = (
    _quarters(("A30",), ("1g.6gb", 6144), ("2g.12gb", 12288), ("4g.24gb", 24576)),
    _sevenths(
        ("A100-SXM4-40GB", "A100-40GB-PCIe", "A100-PCIE-40GB"),
        ("1g.5gb", 5120),
        ("2g.10gb", 10240),
        ("3g.20gb", 20480),
        ("7g.40gb", 40960),
    ),
    _sevenths(
        ("A100-SXM4-80GB", "A100-80GB-PCIe", "A100-PCIE-80GB", "A100 80GB PCIe"),
        ("1g.10gb", 9728),
        ("2g.20gb", 19968),
        ("3g.40gb", 40192),
        ("7g.80gb", 80896),
    ),
    _sevenths(
        ("H100 80GB", "H100-80GB", "H100-SXM5-80GB", "H100 PCIe", "H100-PCIE-80GB"),
        ("1g.10gb", 9984),
        ("2g.20gb", 20096),
        ("3g.40gb", 40448),
        ("7g.80gb", 81152),
    ),
    _sevenths(
        ("H100 NVL", "H100-NVL"),
        ("1g.12gb", 10880),
        ("2g.24gb", 22016),
        ("3g.47gb", 47232),
        ("7g.94gb", 94848),
    ),
    _sevenths(
        ("H100 96GB", "GH200 480GB"),
        ("1g.12gb", 11264),
        ("2g.24gb", 23552),
        ("3g.48gb", 47616),
        ("7g.96gb", 95232),
    ),
    _sevenths(
        ("NVIDIA H200", "NVIDIA-H200", "NVIDIA H20-3e"),
        ("1g.18gb", 16384),
        ("2g.35gb", 33024),
        ("3g.71gb", 71168),
        ("7g.141gb", 143104),
    ),
    _sevenths(
        ("NVIDIA H20", "NVIDIA-H20"),
        ("1g.12gb", 12032),
        ("2g.24gb", 24064),
        ("3g.48gb", 48128),
        ("7g.96gb", 96256),
    ),
    _sevenths(
        ("NVIDIA B200", "NVIDIA-B200"),
        ("1g.23gb", 20992),
        ("2g.45gb", 45312),
        ("3g.90gb", 90624),
        ("7g.180gb", 181248),
    ),
    _quarters(
        ("RTX PRO 6000 Blackwell",),
        ("1g.24gb", 23680),
        ("2g.48gb", 47616),
        ("4g.96gb", 95616),
    ),
)
