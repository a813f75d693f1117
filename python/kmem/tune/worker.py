# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The part of `kmem tune` that runs on a worker of Dask: replays of an option set.

Dask sends it there by value, with the tool and the traces. So a worker needs Python, Dask and
libzstd, but nothing of libkmem. This module imports only the standard library and Dask.
"""

import errno
import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EXIT_OF_REPLAY = 2  # at most, with a line that has the reason
BUSY_SECONDS = 10  # that a new program may be open for writing in a child of another thread


def place(content: bytes) -> Path:
    """A file with the content, in the worker's own folder, which goes with the worker."""
    from distributed import get_worker

    folder = Path(get_worker().local_directory)
    file = folder / f"kmem-{hashlib.sha256(content).hexdigest()}"
    if not file.exists():
        handle, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as output:
            output.write(content)
        Path(name).chmod(0o700)
        Path(name).replace(file)  # whole, or not there
    return file


def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Runs a program that was written just now."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False
            )
        except OSError as error:
            if error.errno != errno.ETXTBSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def replay(tool: bytes, traces: Sequence[bytes], arguments: Sequence[str]) -> dict[str, Any]:
    """Documents of the replays, without their caches; or the line that says why there are none.

    Raises OSError if replays cannot run here, whatever the options.
    """
    documents = []
    program, files = place(tool), [place(trace) for trace in traces]
    for file in files:
        done = run([program, file, *arguments])
        *messages, _ = done.stderr.splitlines() or [""]
        if done.returncode < 0 or done.returncode > EXIT_OF_REPLAY:
            # Killed, or not started: a missing library, too little memory.
            raise OSError(f"replay ended with status {done.returncode}: {done.stderr.strip()}")
        if done.returncode != 0 or messages:
            text = next(filter(None, done.stderr.splitlines()), "replay failed")
            # A replay that runs complains only about its options.
            return {"error": text, "refused": done.returncode != 1}
        document = dict(json.loads(done.stdout))
        del document["caches"]
        documents.append(document)
    return {"documents": documents}
