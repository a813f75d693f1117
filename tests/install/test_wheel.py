# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The wheel of `make wheel` in an environment that has nothing else, with the tree out of sight."""

import email
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from users import OWNER

from kmem.common.extras import EXTRA_OF

ROOT = Path(__file__).resolve().parents[2]
VERSION = (ROOT / "VERSION").read_text().strip()
MOST_BYTES = 30_000_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, ROOT / "scripts" / "wheel.py", folder], check=True)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python environment with the wheel; pip may ask nobody for packages."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--no-index", "--quiet", wheel]
    subprocess.run(pip, check=True)
    return folder


def run(environment: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """With the folders of the environment and of the system in PATH."""
    script = 'mount -t tmpfs none "$0" && exec "$@"'
    hide: list[str | Path] = ["unshare", "-rm", "sh", "-c", script, ROOT]
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare: no namespaces here, so the tree cannot be hidden")
    return subprocess.run(
        [*hide, *words],
        cwd=environment, env={"PATH": f"{environment / 'bin'}:/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_it_is_small_and_says_its_platform(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES
    assert re.fullmatch(rf"kmem-{VERSION}-py3-none-manylinux_2_28_\w+(\.\w+)*\.whl", wheel.name)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [ROOT / "scripts" / "wheel", "file/folder"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    # A relative one counts from where the caller is.
    told = f"kmem: wheel: {tmp_path / 'file' / 'folder'}: Not a directory\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_no_package_comes_with_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"kmem-{VERSION}.dist-info/METADATA").decode()
    needed = email.message_from_string(text).get_all("Requires-Dist", [])
    assert needed and all("extra ==" in line for line in needed)
    extras = {match for line in needed for match in re.findall(r'extra == "(\w+)"', line)}
    table = (ROOT / "docs" / "install.md").read_text()
    assert extras == set(re.findall(r"^\| `kmem\[(\w+)\]`", table, re.MULTILINE))
    assert extras == set(EXTRA_OF.values()) - {"bench"} | {"command", "plots"}


def test_malloc_is_replaced(environment: Path) -> None:
    done = run(environment, "python3", "-c", OWNER)
    assert done.returncode != 0 and "undefined symbol: ksize" in done.stderr
    done = run(environment, "kmem", "run", "--", "python3", "-c", OWNER)
    assert done.returncode == 0, done.stderr
    library = Path(done.stdout.strip())
    assert library.name == "libkmem-malloc.so" and library.is_relative_to(environment)
    done = run(environment, "kmem", "run", "--slabinfo", "-", "--", "python3", "-c", "")
    assert "\nkmalloc-" in done.stderr


def test_version_and_missing_packages(environment: Path) -> None:
    assert run(environment, "kmem", "--version").stdout == f"kmem {VERSION}\n"
    done = run(environment, "kmem", "top")
    # The Python of the command: the first pip in PATH may be of another one.
    line = re.fullmatch(
        r"kmem: Python packages are missing; install them with: (\S+) -m pip install "
        r"'kmem\[watch\]'\n",
        done.stderr,
    )
    assert done.returncode == 1 and line, done.stderr
    assert Path(line[1]).parent.samefile(environment / "bin")
    assert "kmem[command]" in run(environment, "kmem", "top", "--help").stderr
    done = run(environment, "kmem", "bench", "micro")
    assert done.stderr == "kmem: bench: not installed; expected libkmem's tree, and ./kmem there\n"


def test_commands_with_packages(environment: Path, tmp_path: Path) -> None:
    """With those of the tree's .venv, in which a .pth file would lead to the tree's own package."""
    (package,) = environment.glob("lib/python*/site-packages")
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from kmem.__main__ import main; main()"

    def kmem(*words: str | Path) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, package, *words],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    kmem("record", "program", "--out", "seq.ktrace", "--", "seq", "3")
    kmem("replay", "seq.ktrace", "--json", "replay.json")
    assert json.loads((tmp_path / "replay.json").read_text())
    assert "objects and pages a slab" in kmem("lab", "order", "--table-only")


def test_equal_trees_make_equal_wheels(wheel: Path, tmp_path: Path) -> None:
    """Zip archives keep times to two seconds; the first wheel is older than that by now."""
    subprocess.run([sys.executable, ROOT / "scripts" / "wheel.py", tmp_path], check=True)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()
