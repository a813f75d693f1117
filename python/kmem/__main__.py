# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Entry point. What the launcher does goes there before anything else is imported."""

import sys


def open_streams() -> None:
    """Begin anew if a stream is closed, with one that cannot be used, as ./kmem does.

    Otherwise the next file that somebody opens gets its number, and Python has no stream at all.
    """
    import os

    if all((sys.stdin, sys.stdout, sys.stderr)):
        return
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def main() -> None:
    try:
        # Ctrl-C may come while modules are loaded, too.
        import os

        from kmem.common.errors import KmemError, say
        from kmem.common.extras import extra_of
        from kmem.common.tree import IN_TREE, LAUNCHER, need_extra, need_tree

        command = "".join(sys.argv[1:2])
        if command in ("run", "--version"):
            os.execv(LAUNCHER, [str(LAUNCHER), *sys.argv[1:]])
        open_streams()
        try:
            if command in ("bench", "demo"):
                need_tree(command)
            if not IN_TREE:  # ./kmem has installed them
                need_extra(extra_of(sys.argv[1:]))
            from kmem.commands.start import start

            status = start()
        except KmemError as error:
            say(str(error))
            status = error.status
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


if __name__ == "__main__":
    main()
