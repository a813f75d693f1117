#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Build and test in other releases of Debian, whose C libraries and compilers are newer.

    releases.py [--folder FOLDER] [--release NAME]... [--compiler NAME]... [--kind KIND]...
                [--huge-pages kept|always] [--only-c | --only-programs]

Each release is a directory tree in FOLDER (build-releases), made once by debootstrap from the
mirror that this machine's apt uses. It trusts the certificates that were added to this machine's
own. This tree's files are copied there, built by gcc and clang at each optimization (compilers.py,
which has --compiler and --kind for some of these builds), and its C tests (not with
--only-programs) and its tests of real programs (not with --only-c) run.
All that happens twice: with transparent huge pages as the machine has them, and with all memory in
huge pages (`always`, Debian's default); --huge-pages chooses one of the two. That setting is the
machine's: it is put back at the end, in whatever way this is ended. The result is a table.

What runs in a tree has mounts and process ids of its own, so it ends with this program, and leaves
no mount.

Needs root. Exit status: 0, 1 if something failed, 2 for a wrong command line, 77 (with the reason)
if it cannot run here.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import ending
from compilers import COMPILERS, KINDS
from huge_pages import FILE as HUGE_PAGES
from huge_pages import huge_pages

ROOT = Path(__file__).resolve().parent.parent
RELEASES = ["trixie", "sid"]
PLACE = "root/kmem"  # of the copy, in the release's tree
PACKAGES = """gcc g++ clang lld make libc6-dev libzstd-dev libcmocka-dev pkg-config valgrind zstd
    systemtap-sdt-dev liburcu-dev meson ninja-build python3 python3-venv git ca-certificates gdb"""

# Where Debian keeps certificates that were added by hand, and the variables that name other files.
CERTIFICATES = Path("/usr/local/share/ca-certificates")
CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
DEBIAN_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True)
class Part:
    """The part of the work that the command line chose."""

    compilers_options: list[str]
    huge_pages: list[str]
    c: bool
    programs: bool


def mirror() -> str:
    """The address from which apt gets this machine's own release."""
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    for path in sorted(Path("/etc/apt").glob("sources.list*")):
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in files:
            for part in re.split(r"\n\s*\n", file.read_text()):
                suites = re.search(r"^Suites:(.*)", part, re.MULTILINE)
                address = re.search(r"^URIs:\s*(\S+)", part, re.MULTILINE)
                if suites and address and suite in suites[1].split():
                    return address[1]
            line = re.search(rf"^deb\s+(?:\[.*\]\s+)?(\S+)\s+{suite}\s", file.read_text(), re.M)
            if line:
                return line[1]
    raise SystemExit(f"releases.py: /etc/apt names no mirror of {suite}")


# In a mount namespace, where the tree gets a mount for itself, as programs there expect of a root.
# Registries are named after process ids, so files of shared memory are the tree's own too.
ENTER = """mount --rbind "$1" "$1"
for name in sys dev; do mount --rbind /$name "$1/$name"; done
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
chroot "$1" /bin/sh -c "$2"
exit $?"""  # this shell stays, and waits for processes without a parent


def run_in(tree: Path, script: str, log: Path) -> int:
    """A shell script in a tree; no process and no mount of it outlives it, or this process."""
    with log.open("a") as output:
        return ending.run(
            ending.own_system(["sh", "-ec", ENTER, "sh", tree, script]),
            by=signal.SIGKILL,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"},
        )


def make(release: str, folder: Path, packages: str = PACKAGES, base: Path | None = None) -> str:
    """A release's tree with these packages; returns why that failed, or nothing.

    It begins as a copy of the tree @base, if one is named.
    """
    tree = folder / release
    log = folder / f"{release}.log"
    if not (tree / "etc" / "apt").exists() or not (folder / f"{release}.base").exists():
        command = ["debootstrap", "--variant=minbase", release, str(tree), mirror()]
        if base:
            shutil.rmtree(tree, ignore_errors=True)
            command = ["cp", "-a", str(base), str(tree)]
        with log.open("a") as output:
            made_by = ending.own_system(["sh", "-c", '"$@"; exit $?', "sh", *command])
            if ending.run(made_by, by=signal.SIGKILL, stdout=output, stderr=output) != 0:
                return f"{command[0]} failed, see {log}"
        (folder / f"{release}.base").touch()
    for name in ("resolv.conf", "hosts"):
        (tree / "etc" / name).write_text(Path("/etc", name).read_text())
    # A mirror that stands still is good enough: its release file may have expired.
    still = 'Acquire::Check-Valid-Until "false";\n'
    (tree / "etc" / "apt" / "apt.conf.d" / "99still").write_text(still)
    wanted = " ".join(packages.split())
    made = folder / f"{release}.packages"
    if not made.exists() or made.read_text() != wanted:
        # No service is started there (policy-rc.d).
        script = f"""printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
            chmod 755 /usr/sbin/policy-rc.d
            export DEBIAN_FRONTEND=noninteractive
            install() {{ apt-get install -y --no-install-recommends {wanted}; }}
            install || {{ apt-get update && install; }}"""
        if run_in(tree, script, log) != 0:
            return f"installing packages failed, see {log}"
        made.write_text(wanted)
    if not trust(tree, log):
        return f"adding this machine's certificates failed, see {log}"
    return ""


def own_certificates() -> list[str]:
    """The certificates that were added to this machine's own, as behind a proxy that signs anew."""
    files = set(CERTIFICATES.rglob("*.crt"))
    files |= {Path(os.environ[name]) for name in CERTIFICATE_VARIABLES if os.environ.get(name)}
    found: dict[str, None] = {}  # in the order of the files, each once
    for file in sorted(files - {DEBIAN_CERTIFICATES}):
        if file.is_file():
            text = file.read_text(errors="replace")
            found |= dict.fromkeys(re.findall(r"-----BEGIN C.*?-----END C[^\n]*", text, re.DOTALL))
    return list(found)


def trust(tree: Path, log: Path) -> bool:
    """Makes a tree trust them; Debian's script takes one certificate from each file."""
    folder = tree / CERTIFICATES.relative_to("/") / "host"
    wanted = own_certificates()
    files = sorted(folder.glob("*.crt"))
    if [file.read_text() for file in files] == wanted:
        return True
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        file.unlink()
    for number, certificate in enumerate(wanted):
        (folder / f"{number:03}.crt").write_text(certificate)
    if run_in(tree, "update-ca-certificates --fresh", log) == 0:
        return True
    shutil.rmtree(folder)  # so that the next run does not take them for added
    return False


def copy_sources(tree: Path) -> None:
    """The files that git knows, with their times, so that only what changed is built."""
    place = tree / PLACE
    place.mkdir(parents=True, exist_ok=True)
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    pack = ["tar", "-c", "--null", "--ignore-failed-read", "-T", "-"]
    packed = subprocess.run(pack, cwd=ROOT, input=names.stdout, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", place], input=packed.stdout, check=True)


def programs_line(tree: Path, log: Path) -> tuple[bool, str]:
    """The tests of real programs: whether all is well, and what to say of them."""
    result = tree / PLACE / "programs.xml"
    result.unlink(missing_ok=True)
    script = f"""cd /{PLACE} && scripts/build tests && scripts/venv test &&
        .venv/bin/python -m pytest -q -m 'not full' --junitxml=programs.xml tests/programs"""
    status = run_in(tree, script, log)
    if not result.exists():
        return False, f"Real programs: none ran, see {log}"
    cases = list(ElementTree.parse(result).getroot().iter("testcase"))
    bad = [case for case in cases if {"failure", "error"} & {part.tag for part in case}]
    skipped = [case for case in cases if "skipped" in {part.tag for part in case}]
    passed = len(cases) - len(bad) - len(skipped)
    lines = [f"Real programs: {passed} passed, {len(bad)} failed, {len(skipped)} skipped."]
    lines += [f"- failed: {case.get('classname')}::{case.get('name')}" for case in bad]
    return status == 0 and not bad, "\n".join(lines)


def test(release: str, folder: Path, part: Part) -> bool:
    tree = folder / release
    log = folder / f"{release}.log"
    well = True
    if part.c:
        table = tree / PLACE / "compilers.md"
        table.unlink(missing_ok=True)
        command = " ".join(["python3 scripts/compilers.py", *part.compilers_options])
        well = run_in(tree, f"cd /{PLACE} && {command} >compilers.md", log) == 0
        print(table.read_text() if table.exists() else f"No build, see {log}")
    if part.programs:
        programs_well, line = programs_line(tree, log)
        print(line, flush=True)
        well = well and programs_well
    return well


def each_setting(release: str, folder: Path, part: Part) -> bool:
    well = True
    if "kept" in part.huge_pages:
        print(f"### {release}, huge pages as they are: {HUGE_PAGES.read_text().strip()}\n")
        well = test(release, folder, part)
    if "always" not in part.huge_pages:
        return well
    print(f"\n### {release}, huge pages `always`\n")
    if not os.access(HUGE_PAGES, os.W_OK):
        print(f"Skipped: {HUGE_PAGES} cannot be written.")
        return well
    try:
        with huge_pages("always"):
            return test(release, folder, part) and well
    except OSError as error:
        print(f"Skipped: {error}.")
        return well


def read_command() -> tuple[Path, list[str], Part]:
    """The folder, the releases and the part of the work."""
    parser = argparse.ArgumentParser(description="Build and test in other releases of Debian.")
    parser.add_argument("--folder", type=Path, default=ROOT / "build-releases")
    parser.add_argument("--release", action="append", choices=RELEASES)
    parser.add_argument("--compiler", action="append", choices=list(COMPILERS), default=[])
    parser.add_argument("--kind", action="append", choices=list(KINDS), default=[])
    parser.add_argument("--huge-pages", choices=["kept", "always"], help="only this setting")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--only-c", action="store_true", help="no tests of real programs")
    only.add_argument("--only-programs", action="store_true", help="only tests of real programs")
    chosen = parser.parse_args()
    options = [f"--compiler={name}" for name in chosen.compiler]
    options += [f"--kind={name}" for name in chosen.kind]
    settings = [chosen.huge_pages] if chosen.huge_pages else ["kept", "always"]
    part = Part(options, settings, c=not chosen.only_programs, programs=not chosen.only_c)
    return chosen.folder.absolute(), chosen.release or RELEASES, part


def main() -> int:
    folder, releases, part = read_command()
    if os.geteuid() != 0:
        print("making a tree of another release and entering it needs root")
        return 77
    if subprocess.run(
        [ROOT / "scripts" / "debian-packages", "debootstrap"], check=False
    ).returncode:
        print("debootstrap is not installed")
        return 77
    folder.mkdir(parents=True, exist_ok=True)
    well = True
    for release in releases:
        if reason := make(release, folder):
            print(f"### {release}\n\n{reason}")
            well = False
            continue
        copy_sources(folder / release)
        well = each_setting(release, folder, part) and well
    return 0 if well else 1


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
