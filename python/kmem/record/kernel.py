# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem record kernel`: a trace of the running kernel."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kmem.common.errors import BadUsage, KmemError, say
from kmem.common.files import whole
from kmem.common.signals import end_as_by_ctrl_c
from kmem.common.tree import BUILD, ROOT, build, need_packages
from kmem.record.folder import Unmade, making_a_trace, work_folder
from kmem.record.running import run_with_its_signals
from kmem.record.tool import check_out, run_tool, shown, source_of
from kmem.traces.slabinfo import SlabinfoError, parse_slabinfo

KERNEL_TOOL = BUILD / "tools" / "record-kernel"
SECONDS_MOST = 86400


def table_growth(folder: Path) -> int | None:
    """How many objects more the kernel's own table has afterwards; None where it has no table."""
    try:
        before, after = (
            sum(cache.active_objects for cache in parse_slabinfo((folder / name).read_text()))
            for name in ("slabinfo.before", "slabinfo.after")
        )
    except (OSError, SlabinfoError):
        return None
    return after - before


def unpaired(counts: dict[str, Any], growth: int | None) -> str:
    """A line on bulk calls, which have no tracepoint, and their effect on the trace.

    The trace ends an object freed in bulk when its address is handed out again. If it never is, the
    object stays in the trace. The growth of the kernel's table tells how many of these objects
    there are. This is an estimate, because that table counts free objects of CPU slabs as active.
    """
    frees = counts["frees"] + counts["implied"] + counts["orphans"]
    text = (
        f"{counts['implied']:,} frees in bulk paired by the address's next use,"
        f" {counts['orphans']:,} frees of objects older than the trace or got in bulk"
    )
    if growth is not None:
        rest = max(0, counts["living"] - counts["orphans"] - growth)
        share = 100 * rest / (frees + rest) if frees + rest else 0
        text += f"; about {rest:,} frees unpaired, {share:.1f}% of all (by the kernel's table)"
    return text


def kernel_tool() -> None:
    """Build the tool, with the libraries that nothing else needs."""
    build()
    if KERNEL_TOOL.exists():
        return
    need_packages("pkg-config", "libtracefs-dev", "libtraceevent-dev")
    tools = ROOT / ".venv" / "bin"
    # Meson looks for the tree in the current directory, and for Ninja in PATH: Ninja of another
    # version would build everything anew.
    done = subprocess.run(
        [sys.executable, "-E", tools / "meson", "setup", "--reconfigure", BUILD],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{tools}:{os.environ.get('PATH', os.defpath)}"},
        capture_output=True,
        text=True,
        check=False,
    )
    build()
    if done.returncode != 0 or not KERNEL_TOOL.exists():
        raise KmemError("record kernel: needs libzstd, libtracefs and libtraceevent to be built")


def record_kernel(command: Sequence[str], seconds: float | None, out: Path, buffer_kib: int) -> int:
    """The command's exit status."""
    if bool(command) == (seconds is not None):
        raise BadUsage("record kernel: expected --seconds N or -- COMMAND, one of the two")
    if seconds is not None and not 0 < seconds <= SECONDS_MOST:
        raise BadUsage(
            f"record kernel: --seconds {seconds:g}: expected more than 0, at most {SECONDS_MOST}"
        )
    if os.geteuid() != 0:
        raise KmemError("record kernel: only root may read tracefs")
    end_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    check_out(out)
    kernel_tool()
    system = os.uname()
    what = "" if command else f"{seconds:g} s"
    source = source_of(
        f"kernel: {system.sysname} {system.release} {system.machine}: {what}", command
    )
    with work_folder(out, {"boot": boot_id(), "source": source}) as folder:
        counts = record_events(folder, out, [str(seconds or 0), str(buffer_kib), source, *command])
        lost = f"{counts['lost']:,} lost" if counts["lost"] else "none lost"
        say_of_kernel(out, counts, folder, lost)
    if counts["lost"]:
        say(f"a larger --buffer than {buffer_kib} KiB a CPU loses less")
    return int(counts["status"])


def record_events(folder: Path, out: Path, words: Sequence[str]) -> dict[str, Any]:
    """Make the trace; its counts."""
    with making_a_trace(), whole(out) as place:
        # Standard output and error are the command's, so the report goes to a file.
        status = run_with_its_signals([KERNEL_TOOL, place, folder, *words])
        if status != 0:  # it has given the reason
            if any(file.stat().st_size for file in folder.glob("cpu*")):
                raise Unmade(f"record: {out}: no trace was made")
            raise SystemExit(1)
        return dict(json.loads((folder / "report").read_text()))


def say_of_kernel(out: Path, counts: dict[str, Any], folder: Path, lost: str) -> None:
    say(f"{out}: {counts['events']:,} events in {counts['seconds']:.2f} s, {lost}")
    say(shown(counts))
    say(unpaired(counts, table_growth(folder)))


def boot_id() -> str:
    """A text that changes with each start of the machine, as the kernel's addresses do."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def recover_kernel(folder: Path, out: Path, about: dict[str, Any]) -> None:
    if os.geteuid() != 0:
        raise KmemError("record recover: only root may read tracefs")
    if about.get("boot") != boot_id():
        raise KmemError(
            f"record recover: {folder}: recorded before the machine was started, by a kernel whose"
            " addresses nobody knows any more"
        )
    kernel_tool()
    with whole(out) as place:
        run_tool(KERNEL_TOOL, "--recover", place, folder, str(about.get("source", "")))
        counts = json.loads((folder / "report").read_text())
        say_of_kernel(out, counts, folder, "what was lost is not known")
