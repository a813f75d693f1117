# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Entry point. `run` goes to the launcher before anything else is imported."""

import sys


def main() -> None:
    try:
        # Ctrl-C may come while modules are loaded, too.
        import os
        from pathlib import Path

        if sys.argv[1:2] == ["run"]:
            launcher = Path(__file__).resolve().parents[2] / "kmem"
            os.execv(launcher, [str(launcher), *sys.argv[1:]])

        from kmem.commands.start import start

        status = start()
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


if __name__ == "__main__":
    main()
