# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Every command of docs/tutorials runs and prints what stands there (scripts/tutorials.py)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"

sys.path.insert(0, str(SCRIPTS))
import tutorials  # noqa: E402

FILES = sorted(tutorials.TUTORIALS.glob("*.md"))
# A program, and the Debian packages with it and what it needs.
NEEDS = {
    "server.md": ("redis-server", ["redis-server", "redis-tools"]),
    "rust.md": ("cargo", ["cargo", "librust-cc-dev", "librust-pkg-config-dev", "pkg-config"]),
}


def follow(*files: Path, action: str = "check") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPTS / "tutorials.py", action, *files]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.alone
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_commands_print_what_stands_there(file: Path) -> None:
    if file.name in NEEDS:
        program, packages = NEEDS[file.name]
        done = subprocess.run(
            [SCRIPTS / "debian-packages", *packages], capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or shutil.which(program) is None:
            pytest.skip(f"no {program}: {' '.join(done.stderr.split())[-200:]}")
    done = follow(file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_tutorial_has_commands_with_outputs(file: Path) -> None:
    steps = list(tutorials.steps(file.read_text()))
    commands = [step for step in steps if isinstance(step, tutorials.Command)]
    assert len(commands) >= 8
    assert sum(bool(command.output) for command in commands) >= 5


TEXT = """# Words

New file `/tmp/kmem-tutorial/two`:

```text
two
```

New file `/tmp/kmem-tutorial/script`:

```sh
cat /tmp/kmem-tutorial/two
```

```console
$ cat /tmp/kmem-tutorial/two
two
$ sh /tmp/kmem-tutorial/script
two
$ export A=b
$ echo "$A 1.5K" 27%; echo c
b 9K 3%
c
$ seq 3 | sed 's/^/line /; $s/$/ last/'
line 1
...
line 3 last
```
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("", "", ""),
        ("9K", "many", "$ echo"),
        ("line 3 last", "line 3", "$ seq"),
        ("\ntwo\n$", "\nthree\n$", "$ cat"),
        ("cat /tmp", "cat /nowhere", "ended with status 1"),
        ("export A=b", "exit", "ended the shell"),
    ],
)
def test_differences_are_found(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = tmp_path / "page.md"
    file.write_text(TEXT.replace(old, new))
    done = follow(file)
    assert done.returncode == (1 if words else 0), done.stdout + done.stderr
    assert words in done.stdout and (words != "" or done.stdout == "")


def test_outputs_are_written(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(TEXT.replace("\ntwo\n$", "\n$").replace("line 1", "nothing"))
    assert follow(file, action="write").returncode == 0
    assert file.read_text() == TEXT.replace("b 9K 3%", "b 1.5K 27%")
    assert follow(file).returncode == 0
