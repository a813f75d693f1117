# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The machine that figures are taken on."""

import platform
from pathlib import Path


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
