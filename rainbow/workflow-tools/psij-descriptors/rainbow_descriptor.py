"""How PSI/J finds the executor `rainbow`."""

from packaging.version import Version
from psij.descriptor import Descriptor

__PSI_J_EXECUTORS__ = [
    Descriptor(name="rainbow", nice_name="rainbow", version=Version("0.1.0"), cls="rainbow_psij.RainbowJobExecutor")
]
