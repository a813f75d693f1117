# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Debian's packages of other releases and architectures, unpacked into folders.

Packages come from the mirror that this machine's own come from. Nothing is installed and nothing
of a package is run, so this takes no rights, and foreign architectures no emulator. Whatever was
unpacked once is taken from the cache; deleting that fetches what is newest.
"""

import fnmatch
import shutil
import subprocess
from pathlib import Path

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# What is no use in a file system that is in memory.
USELESS = (
    "usr/share/doc*",
    "usr/share/info*",
    "usr/share/locale*",
    "usr/share/man*",
    "usr/share/zoneinfo*",
    "usr/lib/gcc/*/lto*",
    "usr/libexec/gcc/*/lto*",
    "usr/bin/*lto-dump*",
    "usr/lib/*/gconv*",
    "usr/lib/gcc/*/lib*san*",
)


class Unavailable(Exception):
    """Packages that cannot be had here; the text says why."""


def run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not installed") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("E:")] or [""]
        raise Unavailable(f"{' '.join(command[:3])}...: status {done.returncode} {said[-1]}")
    return done.stdout


def mirror() -> str:
    """The address from which this machine's own packages of Debian come."""
    wanted = ["Created-By: Packages", "Origin: Debian", "Component: main"]
    listed = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted], Path("/"))
    found = [line.rstrip("/") for line in listed.splitlines() if "security" not in line]
    if not found:
        raise Unavailable("this machine's packages do not come from Debian")
    return found[0]


class Release:
    """One release of Debian for one architecture, with package lists of its own."""

    def __init__(self, cache: Path, name: str, architecture: str) -> None:
        self.folder = cache / f"{name}-{architecture}"
        self.name = name
        self.architecture = architecture

    def environment(self) -> dict[str, str]:
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "APT_CONFIG": str(self.folder / "apt.conf"),
        }

    def prepare(self) -> None:
        """Package lists, once."""
        if (self.folder / "lists.complete").exists():
            return
        (self.folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (self.folder / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        source = f"deb [signed-by={KEYS}] {mirror()} {self.name} main\n"
        (self.folder / "sources.list").write_text(source)
        (self.folder / "apt.conf").write_text(
            f'APT::Architecture "{self.architecture}";\n'
            f'APT::Architectures {{ "{self.architecture}"; }};\n'
            'APT::Sandbox::User "root";\n'
            'Acquire::Languages "none";\n'
            f'Dir::State "{self.folder}";\n'
            f'Dir::State::status "{self.folder}/status";\n'
            f'Dir::Cache "{self.folder}";\n'
            f'Dir::Etc::sourcelist "{self.folder}/sources.list";\n'
            'Dir::Etc::sourceparts "-";\n'
        )
        run(["apt-get", "-q", "update"], self.folder, self.environment())
        (self.folder / "lists.complete").touch()

    def unpack(self, target: str, packages: list[str]) -> Path:
        """Packages and all that they depend on, in a folder of the cache that is named so."""
        made = self.folder / target
        complete = self.folder / f"{target}.complete"
        if complete.exists() and complete.read_text() == " ".join(packages):
            return made
        self.prepare()
        shutil.rmtree(made, ignore_errors=True)
        archives = self.folder / f"{target}.archives"
        (archives / "partial").mkdir(parents=True, exist_ok=True)
        run(
            [
                *("apt-get", "-q", "-y", "--no-install-recommends", "--download-only"),
                *("-o", f"Dir::Cache::archives={archives}", "install"),
                *packages,
            ],
            self.folder,
            self.environment(),
        )
        for directory in ("bin", "lib", "lib64", "sbin"):
            (made / "usr" / directory).mkdir(parents=True, exist_ok=True)
            (made / directory).symlink_to(f"usr/{directory}")
        for archive in sorted(archives.glob("*.deb")):
            unpack_archive(archive, made)
        shutil.rmtree(archives)
        complete.write_text(" ".join(packages))
        return made

    def source(self, package: str) -> Path:
        """The upstream source of a package, without Debian's changes."""
        made = self.folder / f"{package}-source"
        if not (made / "complete").exists():
            self.prepare()
            shutil.rmtree(made, ignore_errors=True)
            (made / "lists" / "partial").mkdir(parents=True)
            sources = made / "sources.list"
            sources.write_text(f"deb-src [signed-by={KEYS}] {mirror()} {self.name} main\n")
            apt = ["apt-get", "-q", "-o", f"Dir::Etc::sourcelist={sources}"]
            apt += ["-o", f"Dir::State::lists={made / 'lists'}"]
            run([*apt, "update"], made, self.environment())
            run([*apt, "source", "--download-only", package], made, self.environment())
            [archive] = made.glob("*.orig.tar.*[!c]")
            run(["tar", "-x", "--strip-components=1", "-f", str(archive)], made)
            shutil.rmtree(made / "lists")
            (made / "complete").touch()
        return made

    def kernel(self, package: str) -> Path:
        """The image of the kernel that a package depends on; its modules are not fetched."""
        made = self.folder / package
        if not any(made.glob("vmlinuz*")):
            self.prepare()
            made.mkdir(exist_ok=True)
            command = ["apt-cache", "depends", "--recurse", "--important", package]
            listed = run(command, self.folder, self.environment()).split()
            images = {
                name
                for name in listed
                if fnmatch.fnmatch(name, "linux-image-[0-9]*")
                or fnmatch.fnmatch(name, "linux-binary-[0-9]*")
            }
            run(["apt-get", "-q", "download", *sorted(images)], made, self.environment())
            for archive in made.glob("*.deb"):
                unpack_archive(archive, made / "unpacked")
            for image in made.glob("unpacked/**/vmlinuz*"):
                shutil.move(image, made)
            shutil.rmtree(made / "unpacked")
            for archive in made.glob("*.deb"):
                archive.unlink()
        images_found = sorted(made.glob("vmlinuz*"))
        if not images_found:
            raise Unavailable(f"{package}: no kernel image was found in what it depends on")
        return images_found[-1]


def unpack_archive(archive: Path, target: Path) -> None:
    """Whatever a package calls /lib goes where the link of that name leads."""
    target.mkdir(exist_ok=True)
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE
    ) as reader:
        options = ["--keep-directory-symlink", "--no-same-owner", "--delay-directory-restore"]
        options += [f"--exclude=./{pattern}" for pattern in USELESS]
        done = subprocess.run(
            ["tar", "-x", "-C", str(target), *options], stdin=reader.stdout, check=False
        )
    if done.returncode != 0 or reader.returncode != 0:
        raise Unavailable(f"{archive.name} cannot be unpacked")
