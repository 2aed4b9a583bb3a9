"""One small question to every function of which vectors tell, and its right answer."""

from tests.unit.compat_cases.config import CONFIG
from tests.unit.compat_cases.gpu import GPU
from tests.unit.compat_cases.npu import NPU
from tests.unit.compat_cases.plugin import PLUGIN

__all__ = ["CASES"]

CASES = {**GPU, **CONFIG, **NPU, **PLUGIN}
