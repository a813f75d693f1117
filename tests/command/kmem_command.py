# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The command, run as a user runs it."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KMEM = ROOT / "kmem"


def kmem(
    *arguments: object, environment: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Without options of whoever runs the tests, but for those in the environment given."""
    inherited = {name: text for name, text in os.environ.items() if name != "KMEM_OPTIONS"}
    return subprocess.run(
        [KMEM, *map(str, arguments)],
        env=inherited | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
