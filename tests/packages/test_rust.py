# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The crates of packaging/rust as they are published, by Debian's cargo and crates, without a
network: tests, clippy and documents; the archive in a program of rustc alone."""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from builds import ROOT, need_packages, run

RUST = ROOT / "packaging" / "rust"
DEBIAN = """\
[source.crates-io]
replace-with = "debian"
[source.debian]
directory = "/usr/share/cargo/registry"
"""
# Where the tree's build is installed.
OF_THE_TREE = {
    "PKG_CONFIG_PATH": str(ROOT / "build" / "meson-uninstalled"),
    "LD_LIBRARY_PATH": str(ROOT / "build" / "src"),
}
# Debian's own, beside which a machine may have rustup's.
TOOLS = {"RUSTC": "/usr/bin/rustc", "RUSTDOC": "/usr/bin/rustdoc", "PATH": "/usr/bin:/bin"}


@pytest.fixture(scope="module")
def crates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled crates, in which the tests build in turn."""
    need_packages(
        "cargo", "rustc", "rust-clippy", "librust-cc-dev", "librust-pkg-config-dev", "gcc"
    )
    folder = tmp_path_factory.mktemp("rust")
    run([RUST / "bundle", folder / "crates"], folder)
    (folder / "home").mkdir()
    (folder / "home" / "config.toml").write_text(DEBIAN)
    return folder / "crates"


def cargo(crates: Path, *words: str, **environment: str) -> str:
    home = {"CARGO_HOME": str(crates.parent / "home")}
    command, *rest = words
    return run(
        ["/usr/bin/cargo", command, "--offline", "-j2", *rest],
        crates,
        {**TOOLS, **home, **environment},
    )


def passed(output: str) -> int:
    return sum(int(number) for number in re.findall(r"test result: ok\. (\d+) passed", output))


def test_crates(crates: Path) -> None:
    assert passed(cargo(crates, "test")) >= 14


def test_crates_on_the_installed_library(crates: Path) -> None:
    """As pkg-config tells of it; here of the tree's build."""
    words = ("test", "--features", "kmem/system", "--test", "library")
    assert passed(cargo(crates, *words, **OF_THE_TREE)) >= 11


def test_clippy_and_documents(crates: Path) -> None:
    cargo(crates, "clippy", "--all-targets", "--", "-D", "warnings")
    cargo(crates, "doc", "--no-deps", RUSTDOCFLAGS="-D warnings")


def test_versions_are_the_librarys() -> None:
    version = (ROOT / "VERSION").read_text().strip()
    for crate in ("kmem", "kmem-sys"):
        text = (RUST / crate / "Cargo.toml").read_text()
        versions = re.findall(r'^(?:kmem-sys = \{ )?version = "([^"]*)"', text, re.MULTILINE)
        assert set(versions) == {version}


def test_a_bundle_replaces_nothing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="exists; expected the name of a new folder"):
        run([RUST / "bundle", tmp_path], tmp_path)


# libc is named in front of all crates, so that the linker finds its malloc first.
LIBC_FIRST = """\
#[link(name = "c")]
extern "C" { fn strdup(text: *const u8) -> *mut std::os::raw::c_void; }
ALLOCATOR
fn main() {
    let _cache = kmem::Cache::<u64>::new("number").unwrap();
    let (block, copy) = (Box::new([0u8; 100]), unsafe { strdup(b"some text\\0".as_ptr()) });
    let ours = |address: *const std::os::raw::c_void| unsafe { kmem_sys::ksize(address) > 0 };
    println!("{} {}", ours((&*block as *const [u8; 100]).cast()), ours(copy));
}
"""
ALLOCATOR = "#[global_allocator] static A: kmem::Malloc = kmem::Malloc;"


def program(crates: Path, folder: Path, features: str, allocator: str) -> Path:
    """Debian's rustc links with GNU ld, and takes what is behind libc only where it is asked to."""
    (folder / "src").mkdir()
    (folder / "src" / "main.rs").write_text(LIBC_FIRST.replace("ALLOCATOR", allocator))
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "program"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n'
        + "".join(
            f'{name} = {{ path = "{crates}/{name}"{features} }}\n' for name in ("kmem", "kmem-sys")
        )
    )
    home = {"CARGO_HOME": str(crates.parent / "home"), "CARGO_TARGET_DIR": str(crates / "target")}
    run(
        ["/usr/bin/cargo", "build", "--offline", "-j2"],
        folder,
        {**TOOLS, **home, **OF_THE_TREE},
    )
    return shutil.copy(crates / "target" / "debug" / "program", folder / "program")


def test_no_other_malloc_in_silence(crates: Path, tmp_path: Path) -> None:
    """Built in, the library's malloc is the program's, libc's functions included."""
    made = program(crates, tmp_path, "", ALLOCATOR)
    assert run([made], tmp_path) == "true true\n"


def test_another_malloc_is_refused(crates: Path, tmp_path: Path) -> None:
    """As a shared library it stands behind libc in such a program, which ends with a line."""
    made = program(crates, tmp_path, ', features = ["system"]', ALLOCATOR)
    done = subprocess.run(
        [made], env={**os.environ, **OF_THE_TREE}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGABRT, "")
    assert done.stderr.startswith("kmem: malloc is not libkmem's: ")
    assert done.stderr.count("\n") == 1
    # What the user preloads may stand in front, as tools that look at a program do.
    library = ROOT / "build" / "src" / "libkmem-malloc.so"
    assert run([made], tmp_path, {**OF_THE_TREE, "LD_PRELOAD": str(library)}) == "true true\n"


def test_caches_beside_the_malloc_of_libc(crates: Path, tmp_path: Path) -> None:
    made = program(crates, tmp_path, ", default-features = false", "")
    assert run([made], tmp_path) == "false false\n"


PROGRAM = """\
extern "C" { fn strdup(text: *const u8) -> *mut u8; }
fn main() {
    let copy = unsafe { strdup(b"x\\0".as_ptr()) };
    assert!(!copy.is_null() && !vec![0u8; 100].is_empty());
}
"""
ARCHIVE = ROOT / "build" / "src" / "libkmem.a"


@pytest.mark.parametrize(
    ("words", "has_malloc"),
    [
        (["-C", f"link-arg={ARCHIVE}"], False),
        (["-L", f"native={ARCHIVE.parent}", "-l", "static:+whole-archive=kmem"], True),
    ],
)
def test_archive_by_words_for_the_linker(
    tmp_path: Path, words: list[str], has_malloc: bool
) -> None:
    """Behind libc, where rustc puts words for the linker, nothing of an archive is taken."""
    need_packages("rustc")
    (tmp_path / "program.rs").write_text(PROGRAM)
    run(["/usr/bin/rustc", "-O", "program.rs", *words], tmp_path, TOOLS)
    table = tmp_path / "table"
    run([tmp_path / "program"], tmp_path, {"KMEM_OPTIONS": f"slabinfo={table}"})
    assert table.exists() == has_malloc


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_ripgrep(crates: Path, tmp_path: Path) -> None:
    """A program of crates.io on the library; its crates need a newer Rust than Debian's."""
    cargo_of_rustup = shutil.which("cargo")
    if cargo_of_rustup in (None, "/usr/bin/cargo", "/bin/cargo"):
        pytest.skip("only Debian's cargo is there, which is too old for the crates of ripgrep")
    folder = tmp_path / "fetch"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "lib.rs").touch()
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n'
        '[dependencies]\nripgrep = "=14.1.1"\n'
    )
    run([cargo_of_rustup, "vendor", "vendor"], folder)
    source = folder / "vendor" / "ripgrep"
    manifest = source / "Cargo.toml"
    text = manifest.read_text()
    dependency = f'[dependencies.kmem]\npath = "{crates}/kmem"\n\n'
    manifest.write_text(text.replace("[dependencies.anyhow]", dependency + "[dependencies.anyhow]"))
    main = source / "crates" / "core" / "main.rs"
    allocator = "#[global_allocator]\nstatic KMEM: kmem::Malloc = kmem::Malloc;\n\nfn main()"
    main.write_text(main.read_text().replace("fn main()", allocator, 1))
    run([cargo_of_rustup, "build", "--release", "-j2"], source, {"CARGO_TARGET_DIR": "target"})
    program = source / "target" / "release" / "rg"
    table = tmp_path / "table"
    words = [program, "--sort", "path", "-n", r"\bkmem_cache_alloc\b", ROOT / "src"]
    found = run(words, tmp_path, {"KMEM_OPTIONS": f"slabinfo={table}"})
    grep = ["grep", "-rnw", "kmem_cache_alloc", ROOT / "src"]
    assert sorted(found.splitlines()) == sorted(run(grep, tmp_path).splitlines())
    assert "kmalloc-64" in table.read_text()
