# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The way to explain a process: its packages come when there is such a process."""

from pathlib import Path

from kmem.common.tree import need_extra


def explain_process(
    process: int, *, seconds: float, top: int, json_file: Path | None, html_file: Path | None
) -> None:
    """Print what the heap of a process holds, and write it as JSON and as a page if asked to."""
    need_extra("figures")
    from kmem.live.registry.find import open_process

    # A wrong number is told before further packages are installed.
    open_process(process, writable=True).close()
    need_extra("profile")
    need_extra("lab")
    from kmem.explain.process.show import show_process

    show_process(process, seconds=seconds, top=top, json_file=json_file, html_file=html_file)
