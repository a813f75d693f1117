# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The part of a spread command that runs on a worker of Dask: a run of a program.

Dask sends it there by value, with the program and the files that it reads. So a worker needs
Python, Dask and libzstd, but nothing of libkmem. This module imports only the standard library and
Dask.
"""

import errno
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

BUSY_SECONDS = 10  # that a new program may be open for writing in a child of another thread
LOOK_SECONDS = 0.2  # between looks whether the run is still wanted


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


def started(command: Sequence[str | Path], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",  # names of files are bytes
                env=os.environ | environment,
            )
        except OSError as error:
            if error.errno != errno.ETXTBSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def run(
    words: Sequence[str | None], contents: Sequence[bytes], environment: Mapping[str, str]
) -> tuple[int, str, str]:
    """Status, output and messages of a command. Each None among its words is the next file.

    The program ends early where the run was cancelled, or the command that asked for it has ended.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()
    files = iter([place(content) for content in contents])
    command = [next(files) if word is None else word for word in words]
    with started(command, environment) as process:
        while True:
            try:
                output, messages = process.communicate(timeout=LOOK_SECONDS)
                return process.returncode, output, messages
            except subprocess.TimeoutExpired:
                task = worker.state.tasks.get(key)
                if task is None or task.state == "cancelled":
                    process.terminate()
