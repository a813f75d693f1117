# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `make install` leaves: programs are built and run from it, with the tree out of sight."""

import errno
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from users import CMAKE, FILES, IN_C, IN_CPP, OF_CMAKE

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "/usr/local"
VERSION = (ROOT / "VERSION").read_text().strip()
PACKAGES = ("cmake", "fish", "g++", "man-db", "pkg-config", "zsh")


def make(
    word: str, destination: Path | str, prefix: str = PREFIX
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", word, f"PREFIX={prefix}", f"DESTDIR={destination}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def destination(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = subprocess.run([ROOT / "scripts" / "debian-packages", *PACKAGES], check=False)
    if done.returncode != 0:
        pytest.skip(f"Debian packages are missing: {' '.join(PACKAGES)}")
    folder = tmp_path_factory.mktemp("root")
    # A relative one counts from where make runs.
    done = make("install", os.path.relpath(folder / "there", ROOT))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"are below {folder / 'there' / PREFIX.lstrip('/')}; docs/install.md" in done.stdout
    # An installation may be moved.
    return (folder / "there").rename(folder / "moved")


@pytest.fixture(scope="module")
def prefix(destination: Path) -> Path:
    return destination / PREFIX.lstrip("/")


def without_tree(
    command: list[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it where the tree is an empty folder."""
    script = 'mount -t tmpfs none "$0" && exec "$@"'
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("unshare: no namespaces here, so the tree cannot be hidden")
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, ROOT, *command],
        cwd=folder, env={"PATH": "/usr/bin:/bin", **(environment or {})},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def done_well(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_command_has_links_to_the_libraries(prefix: Path) -> None:
    links = list((prefix / "lib" / "kmem" / "build" / "src").iterdir())
    assert links and all(link.is_symlink() and link.exists() for link in links)


def test_links_between_documents_lead_somewhere(prefix: Path) -> None:
    """A link of an installed document to a document or a picture below docs."""
    folder = prefix / "share" / "doc" / "kmem"
    missing = []
    for file in folder.rglob("*.md"):
        for target in re.findall(r"(?:\]\(|src=\")([\w./-]+\.(?:md|svg|png))", file.read_text()):
            place = (ROOT / file.relative_to(folder).parent / target).resolve().relative_to(ROOT)
            if place.parts[0] == "docs" and not (folder / place).is_file():
                missing.append(f"{file.relative_to(folder)}: {target}")
    assert (folder / "docs" / "tutorials" / "server.md").is_file()
    assert missing == []


@pytest.mark.parametrize(
    ("compiler", "source", "text", "package"),
    [("gcc", "program.c", IN_C, "kmem"), ("g++", "program.cpp", IN_CPP, "kmem"),
     ("gcc -DOURS", "program.c", IN_C, "kmem-malloc")],
)  # fmt: skip
def test_by_pkg_config(
    destination: Path, tmp_path: Path, compiler: str, source: str, text: str, package: str
) -> None:
    (tmp_path / source).write_text(text)
    folder = next(path.parent for path in destination.rglob("kmem.pc"))
    where = {"PKG_CONFIG_PATH": str(folder), "PKG_CONFIG_SYSROOT_DIR": str(destination)}
    line = f"{compiler} {source} -o program $(pkg-config --cflags --libs {package})"
    done_well(without_tree(["sh", "-c", line], tmp_path, where))
    (library,) = folder.parent.glob("libkmem.so")
    done_well(
        without_tree([tmp_path / "program"], tmp_path, {"LD_LIBRARY_PATH": str(library.parent)})
    )
    needed = subprocess.run(
        ["readelf", "-d", tmp_path / "program"], capture_output=True, text=True, check=True
    ).stdout
    assert f"[lib{package}.so.{VERSION.split('.')[0]}]" in needed


def test_by_cmake(prefix: Path, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    words = ["cmake", "-S", ".", "-B", "out", f"-DCMAKE_PREFIX_PATH={prefix}"]
    done_well(without_tree([*words], tmp_path))
    done_well(without_tree(["cmake", "--build", "out"], tmp_path))
    for program in OF_CMAKE:
        done_well(without_tree([tmp_path / "out" / program], tmp_path))
    # A later version, and one with other interfaces, are not found.
    for wanted in ("0.2", "1", "0.1.99"):
        (tmp_path / "CMakeLists.txt").write_text(CMAKE.replace("kmem 0.1 ", f"kmem {wanted} "))
        done = without_tree([*words[:4], "other", words[-1]], tmp_path)
        assert done.returncode != 0 and VERSION in done.stderr, wanted


def test_run_needs_a_shell_only(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "seq").symlink_to("/usr/bin/seq")
    (tmp_path / "kmem").symlink_to(prefix / "bin" / "kmem")
    script = 'PATH=$0; exec "$@"'
    for launcher in (prefix / "bin" / "kmem", tmp_path / "kmem"):
        run: list[str | Path] = [launcher, "run", "--slabinfo", "-", "--", "seq", "2"]
        done = without_tree(["sh", "-c", script, tmp_path / "bin", *run], tmp_path)
        assert done_well(done) == "1\n2\n"
        assert "\nkmalloc-" in done.stderr
    done = without_tree(
        ["sh", "-c", script, tmp_path / "bin", prefix / "bin" / "kmem", "--version"], tmp_path
    )
    assert done_well(done) == f"kmem {VERSION}\n"


def test_other_commands_say_which_packages_they_need(prefix: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    done = without_tree([prefix / "bin" / "kmem", "top"], tmp_path, home)
    assert done.returncode == 1
    # The system's own may be there, and older.
    assert re.match(
        r"kmem: Python packages are (missing|too old \(.*\)); install them with: python3 -m venv ",
        done.stderr,
    )
    assert "textual==" in done.stderr and done.stderr.count("\n") == 1
    done = without_tree([prefix / "bin" / "kmem", "bench", "micro"], tmp_path, home)
    assert done.stderr == "kmem: bench: not installed; expected libkmem's tree, and ./kmem there\n"


def test_commands_with_packages(prefix: Path, tmp_path: Path) -> None:
    """With those of the tree's .venv; all else is the installation's."""
    (tmp_path / "kmem").mkdir()
    (tmp_path / "kmem" / "venv").symlink_to(ROOT / ".venv")
    environment = {"XDG_DATA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}

    def kmem(*words: str | Path) -> str:
        done = subprocess.run(
            [prefix / "bin" / "kmem", *words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done_well(done)

    kmem("record", "program", "--out", "seq.ktrace", "--", "seq", "3")
    kmem("replay", "seq.ktrace", "--json", "replay.json")
    assert json.loads((tmp_path / "replay.json").read_text())
    assert isinstance(json.loads(kmem("ps", "--json")), list)
    assert "objects and pages a slab" in kmem("lab", "order", "--table-only")


def test_manual_pages(prefix: Path, tmp_path: Path) -> None:
    pages = sorted((prefix / "share" / "man").rglob("*.[137]"))
    names = {page.name for page in pages}
    assert names >= {"kmem.1", "kmem-run.1", "kmem-lab-slob.1", "kmem.3", "kmem-caches.3"}
    assert names >= {"kmem_cache_alloc.3", "kmalloc.3", "kmem-options.7"}
    environment = os.environ | {"LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MANROFFSEQ": ""}
    for page in pages:
        done = subprocess.run(
            ["man", "--warnings", "-l", "-Tutf8", "-Z", page],
            cwd=prefix / "share" / "man", env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), page
    done = subprocess.run(
        ["man", "-l", prefix / "share" / "man" / "man7" / "kmem-options.7"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "sheaf_capacity" in done.stdout


BASH = """
set -u
. "$1"
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_kmem
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
fpath=($1 $fpath); autoload -U compinit; compinit -D -u; autoload -Uz _kmem
_describe() { print -rl -- ${rows%%:*} }; _files() {}; _command_names() {}
words=(${@:2}) CURRENT=$(($# - 1)); _kmem
"""


@pytest.mark.parametrize(
    ("words", "wanted"),
    [(["kmem", "re"], {"record", "replay"}), (["kmem", "lab", "slo"], {"slob"}),
     (["kmem", "profile", "--vi"], {"--view"}), (["kmem", "run", "--li"], {"--limit"})],
)  # fmt: skip
def test_completions(prefix: Path, tmp_path: Path, words: list[str], wanted: set[str]) -> None:
    share = prefix / "share"
    bash = share / "bash-completion" / "completions" / "kmem"
    fish = share / "fish" / "vendor_completions.d" / "kmem.fish"
    zsh = share / "zsh" / "site-functions"
    typed = " ".join(words)
    for command, exact in (
        (["bash", "-c", BASH, "bash", bash, *words], True),
        (["zsh", "-fc", ZSH, "zsh", zsh, *words], False),  # zsh itself picks those that begin so
        (["fish", "--no-config", "-c", f"source {fish}; complete -C '{typed}'"], True),
    ):
        environment = os.environ | {"HOME": str(tmp_path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), command
        found = {line.split("\t")[0] for line in done.stdout.splitlines() if line}
        assert found == wanted if exact else found >= wanted, command


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_uninstall_removes_all_of_it_and_nothing_else(tmp_path: Path) -> None:
    destination = tmp_path / "root"
    prefix = destination / PREFIX.lstrip("/")
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "theirs").touch()
    before = files(destination)
    assert make("install", destination).returncode == 0
    first = files(destination)
    # An older version had another file; Python compiled a module.
    listed = prefix / "lib" / "kmem" / "installed"
    (prefix / "lib" / "kmem" / "old").touch()
    listed.write_text(listed.read_text() + "file lib/kmem/old\n")
    assert make("install", destination).returncode == 0
    assert files(destination) == first
    compiled = prefix / "lib" / "kmem" / "python" / "kmem" / "__pycache__"
    compiled.mkdir()
    (compiled / "x.pyc").touch()
    assert make("uninstall", destination).returncode == 0
    assert files(destination) == before
    done = make("uninstall", destination)
    assert done.returncode != 0
    assert f"uninstall: {listed} is missing" in done.stderr


def test_every_new_folder_is_for_everybody(tmp_path: Path) -> None:
    destination = tmp_path / "above" / "root"
    words = ["make", "install", f"PREFIX={PREFIX}", f"DESTDIR={destination}"]
    done = subprocess.run(
        ["sh", "-c", 'umask 077; exec "$@"', "sh", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    done_well(done)
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "above").rglob("*")}
    modes[tmp_path / "above"] = (tmp_path / "above").stat().st_mode & 0o777
    assert [path for path, mode in modes.items() if mode & 0o444 != 0o444] == []


def test_uninstall_after_a_full_disk(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("unshare: no namespaces here, so no small file system")
    script = """
        mount -t tmpfs -o size=4m none "$0"
        make install DESTDIR="$0" && exit 1
        find "$0" -name '*.new'
        find "$0" -name kmem.h
        make uninstall DESTDIR="$0" || exit 1
        find "$0" -type f -o -type l
    """
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / PREFIX.lstrip('/')}/include/kmem.h\n"
    message = rf"kmem: install: {re.escape(str(tmp_path))}/.*: {os.strerror(errno.ENOSPC)}\n"
    assert re.search(message, done.stderr)


def test_a_prefix_is_absolute(tmp_path: Path) -> None:
    done = make("install", tmp_path, "usr")
    assert done.returncode != 0
    assert "kmem: PREFIX=usr: expected a path that begins with /\n" in done.stderr
    assert not files(tmp_path)
