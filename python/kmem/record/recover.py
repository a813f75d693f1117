# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem record recover`: the trace of a recording that was left without a trace."""

import shutil
from pathlib import Path

from kmem.common.errors import BadUsage, KmemError
from kmem.common.tree import build
from kmem.record.folder import PREFIX, has_events, locked, read_about
from kmem.record.kernel import recover_kernel
from kmem.record.program import recover_program
from kmem.record.tool import check_out


def recover(folder: Path, out: Path, *, every: bool) -> None:
    """Make the trace of a recording if its command was killed or could not write the trace."""
    if not folder.is_dir() or not has_events(folder):
        raise BadUsage(f"record recover: {folder}: expected a folder {PREFIX}* of a recording")
    build()
    check_out(out)
    with locked(folder) as ours:
        if not ours:
            raise KmemError(f"record recover: {folder}: a recording into it goes on")
        about = read_about(folder)
        if (folder / "raw").exists():
            recover_program(folder, out, about, every=every)
        else:
            recover_kernel(folder, out, about)
        shutil.rmtree(folder, ignore_errors=True)
