# SPDX-License-Identifier: Apache-2.0 OR MIT
"""install.py install|uninstall|command PREFIX DESTDIR: put libkmem below DESTDIR/PREFIX.

Everything is made in a temporary folder first, so that a failure there changes nothing. A list of
the files, and of the folders that were made for them, is left in lib/kmem/installed; `uninstall`
removes these and no others. A new version takes away what only the old version had. Files are
replaced, never rewritten: running programs keep the library that they have mapped.

`command` is for packagers: it adds the command and all texts to the libraries that `meson install`
has put there, without a list, and leaves debugging information to the packager's tools.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import completions
import ending
import manual
from installed import BUILD, KERNEL_PROGRAM, ROOT, SONAME, put, put_package, put_tree

from kmem.common.errors import BadUsage, KmemError, say

COMMAND = Path("lib/kmem")  # the launcher, the Python package and programs
LIST = COMMAND / "installed"
# What the command looks for, and the names under which the libraries have it.
LINKS = {
    SONAME: SONAME,
    "libkmem-malloc.so": SONAME.replace("libkmem", "libkmem-malloc"),
    "libkmem.a": "libkmem.a",
}
COMPLETIONS = {
    "bash": "share/bash-completion/completions/kmem",
    "zsh": "share/zsh/site-functions/_kmem",
    "fish": "share/fish/vendor_completions.d/kmem.fish",
}
TEXTS = ("README.md", "CHANGELOG.md", "SECURITY.md")


@dataclass
class Installed:
    """Names below the prefix."""

    files: set[str] = field(default_factory=set)
    folders: set[str] = field(
        default_factory=set
    )  # made for the files; removed when they are empty

    @staticmethod
    def read(prefix: Path) -> "Installed":
        found = Installed()
        if (prefix / LIST).exists():
            for line in (prefix / LIST).read_text(encoding="utf-8").splitlines():
                kind, _, name = line.partition(" ")
                (found.folders if kind == "folder" else found.files).add(name)
        return found

    def write(self, stage: Path, prefix: Path) -> None:
        rows = [
            *(f"file {name}" for name in self.files),
            *(f"folder {name}" for name in self.folders),
        ]
        (stage / LIST).write_text("".join(f"{row}\n" for row in sorted(rows)), encoding="utf-8")
        place(stage / LIST, prefix / LIST)


def configured_prefix(meson: Path) -> str:
    done = subprocess.run(
        [meson, "introspect", "--buildoptions", BUILD], capture_output=True, text=True, check=True
    )
    return next(row["value"] for row in json.loads(done.stdout) if row["name"] == "prefix")


def stage_libraries(stage: Path, prefix: str) -> None:
    """Libraries, headers, and the files of pkg-config and CMake, by Meson."""
    meson = ROOT / ".venv" / "bin" / "meson"
    # Meson calls Ninja by its name.
    environment = os.environ | {"PATH": f"{meson.parent}:{os.environ.get('PATH', os.defpath)}"}
    steps: list[list[str | Path]] = [["install", "-C", BUILD, "--quiet", "--destdir", stage]]
    if configured_prefix(meson) != prefix:
        steps.insert(0, ["configure", BUILD, f"-Dprefix={prefix}"])
    for words in steps:
        done = subprocess.run(
            [meson, *words], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise KmemError(f"meson {words[0]} failed: {(done.stdout + done.stderr).strip()}")


def stage_command(prefix: Path, *, stripped: bool = True) -> None:
    put_tree(prefix / COMMAND, KERNEL_PROGRAM, stripped=stripped)
    put_package(prefix / COMMAND / "python" / "kmem")
    libraries = next(prefix.rglob("libkmem.so")).parent
    sources = prefix / COMMAND / "build" / "src"
    sources.mkdir(parents=True)
    for name, library in LINKS.items():
        (sources / name).symlink_to(os.path.relpath(libraries / library, sources))
    (prefix / "bin").mkdir(exist_ok=True)
    (prefix / "bin" / "kmem").symlink_to(Path("..") / COMMAND / "kmem")


def stage_texts(prefix: Path) -> None:
    """Manual pages, completions and documents."""
    manual.main(prefix / "share" / "man")
    with tempfile.TemporaryDirectory() as folder:
        completions.main(Path(folder))
        for shell, place in COMPLETIONS.items():
            put(Path(folder) / shell, prefix / place)
    stage_documents(prefix / "share" / "doc" / "kmem")


def stage_documents(folder: Path) -> None:
    """All that users read or hand on, in the folders of the tree, so that links lead somewhere."""
    docs = ROOT / "docs"
    for file in (
        *(ROOT / name for name in (*TEXTS, "LICENSE-APACHE", "LICENSE-MIT")),
        *sorted(docs.rglob("*.md")),
        *sorted((docs / "pictures").iterdir()),
        *sorted((ROOT / "packaging" / "prometheus").iterdir()),
    ):
        put(file, folder / file.relative_to(ROOT))


def make_folders(prefix: Path, name: str) -> set[str]:
    """The folder of a name below the prefix; returns the folders that were not there."""
    made = set()
    # Those above it as well: with a narrow umask nobody else would come through them.
    for path in reversed((prefix / name).parents):
        if not path.exists():
            path.mkdir()
            path.chmod(0o755)
            if path.is_relative_to(prefix):
                made.add(str(path.relative_to(prefix)))
    return made


def place(source: Path, target: Path) -> None:
    """In one step, so that no program ever sees a part of a file."""
    fresh = target.with_name(f".{target.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        shutil.copy2(source, fresh, follow_symlinks=False)
        if not source.is_symlink():
            fresh.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


def remove(prefix: Path, names: set[str]) -> None:
    for name in names:
        (prefix / name).unlink(missing_ok=True)


def remove_folders(prefix: Path, names: set[str]) -> None:
    """Those that are empty, inner folders first."""
    for name in sorted(names, key=lambda name: -len(Path(name).parts)):
        try:
            (prefix / name).rmdir()
        except OSError:  # somebody else's files are in it, or it is gone
            continue


def renew_cache(destination: str) -> None:
    """The dynamic linker finds libraries of /usr/local by its cache only."""
    if not destination and os.geteuid() == 0:
        path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
        if ldconfig := shutil.which("ldconfig", path=path):
            subprocess.run([ldconfig], check=False)


def install(prefix: Path, below: Path) -> None:
    before = Installed.read(below)
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder) / prefix.relative_to("/")
        with (ROOT / "meson.build").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # as scripts/build
            stage_libraries(Path(folder), str(prefix))
        stage_command(stage)
        stage_texts(stage)
        paths = [path for path in sorted(stage.rglob("*")) if path.is_symlink() or path.is_file()]
        names = {str(path.relative_to(stage)) for path in paths}
        now = Installed({str(LIST), *names}, set(before.folders))
        for name in sorted(now.files):
            now.folders |= make_folders(below, name)
        # Before the files, so that `uninstall` finds all of them where a full disk ends this.
        Installed(before.files | now.files, now.folders).write(stage, below)
        for path in paths:
            place(path, below / path.relative_to(stage))
        remove(below, before.files - now.files)
        now.write(stage, below)
    print(f"{len(now.files)} files are below {below}; docs/install.md says how to link with them")


def uninstall(below: Path) -> None:
    found = Installed.read(below)
    if not found.files:
        raise KmemError(
            f"uninstall: {below / LIST} is missing; expected PREFIX and DESTDIR of an installation"
        )
    # Python leaves compiled modules beside ours.
    for folder in list((below / COMMAND / "python").rglob("__pycache__")):
        shutil.rmtree(folder)
    remove(below, found.files)
    remove_folders(below, found.folders)


def main(word: str, prefix: str, destination: str) -> int:
    try:
        if not Path(prefix).is_absolute():
            raise BadUsage(f"PREFIX={prefix}: expected a path that begins with /")
        place = Path(os.path.normpath(prefix))
        # A relative DESTDIR counts from where make runs.
        below = Path(destination).resolve() / place.relative_to("/") if destination else place
        if word == "command":
            stage_command(below, stripped=False)
            stage_texts(below)
        elif word == "install":
            install(place, below)
        else:
            uninstall(below)
        renew_cache(destination)
    except KmemError as error:
        say(str(error))
        return error.status
    except OSError as error:
        # Of a copy that failed, the place that it was for.
        say(f"{word}: {error.filename2 or error.filename}: {error.strerror}")
        return 1
    return 0


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main(*sys.argv[1:]))
