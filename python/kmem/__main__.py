# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Entry point. `run` goes to the launcher before anything else is imported."""

import os
import sys
from pathlib import Path


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        launcher = Path(__file__).resolve().parents[2] / "kmem"
        os.execv(launcher, [str(launcher), *sys.argv[1:]])

    from kmem.cli import start

    sys.exit(start())


if __name__ == "__main__":
    main()
