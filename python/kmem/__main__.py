# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Entry point. What the launcher does goes there before anything else is imported."""

import sys


def main() -> None:
    try:
        # Ctrl-C may come while modules are loaded, too.
        import os

        from kmem.common.errors import KmemError, say
        from kmem.common.tree import IN_TREE, LAUNCHER, install_advice, need_tree

        command = "".join(sys.argv[1:2])
        if command in ("run", "--version"):
            os.execv(LAUNCHER, [str(LAUNCHER), *sys.argv[1:]])
        try:
            if command in ("bench", "demo"):
                need_tree(command)
            from kmem.commands.start import start

            status = start()
        except KmemError as error:
            say(str(error))
            status = error.status
        except ModuleNotFoundError as error:
            # ./kmem has installed them, so in the tree this is an error of ours.
            if IN_TREE or (error.name or "").partition(".")[0] == "kmem":
                raise
            from kmem.common.extras import extra_of

            say(install_advice(extra_of(sys.argv[1:])))
            status = 1
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


if __name__ == "__main__":
    main()
