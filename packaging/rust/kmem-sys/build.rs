// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds libkmem.a from the sources in `vendor`, which packaging/rust/bundle puts there, or of the tree
//! that this crate is in; with the feature `system` it asks pkg-config for the library instead.

#[cfg(feature = "system")]
fn main() {
    let library = if cfg!(feature = "malloc") {
        "kmem-malloc"
    } else {
        "kmem"
    };
    // pkg-config prints the words for the linker.
    if let Err(error) = pkg_config::Config::new()
        .atleast_version("0.1")
        .probe(library)
    {
        eprintln!("kmem-sys: feature system: expected an installed libkmem 0.1 or newer: {error}");
        std::process::exit(1);
    }
}

#[cfg(not(feature = "system"))]
fn main() {
    bundled::build();
}

#[cfg(not(feature = "system"))]
mod bundled {
    use std::path::{Path, PathBuf};
    use std::{env, fs, process};

    /// The parts of the archive, by their names in recipe.txt; the first two are malloc.
    const PARTS: [&str; 4] = ["archive", "operators", "bound", "core"];

    fn fail(message: &str) -> ! {
        eprintln!("kmem-sys: {message}");
        process::exit(1);
    }

    /// The folder with src and include, and the recipe.
    fn sources() -> (PathBuf, PathBuf) {
        let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
        let vendor = here.join("vendor");
        if vendor.is_dir() {
            let recipe = vendor.join("recipe.txt");
            return (vendor, recipe);
        }
        let tree = here.join("../../..");
        let recipe = tree.join("packaging/recipe.txt");
        if !recipe.is_file() {
            fail("no sources of libkmem: expected the folder vendor, as packaging/rust/bundle makes it");
        }
        (tree, recipe)
    }

    fn values<'a>(recipe: &'a str, part: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
        recipe.lines().filter_map(move |line| {
            let mut words = line.splitn(3, ' ');
            (words.next() == Some(part) && words.next() == Some(key))
                .then(|| words.next())
                .flatten()
        })
    }

    fn compile(recipe: &str, part: &str, include: &Path) {
        let mut build = cc::Build::new();
        build.include(".").include(include);
        // Also in a debug build of the program: programs spend their time in here.
        build.opt_level(2).pic(true).warnings(false);
        build.flag("-std=gnu17");
        for flag in values(recipe, part, "flag") {
            build.flag_if_supported(flag);
        }
        for source in values(recipe, part, "source") {
            build.file(source);
        }
        build.cargo_metadata(false);
        build.compile(&format!("kmem-{part}"));
        // All of it is linked, whatever order the linker gets the libraries in. From an archive it takes what
        // nothing before has, and where libc is before, as for a crate with #[link(name = "c")], malloc is libc's.
        println!("cargo:rustc-link-lib=static:-bundle,+whole-archive=kmem-{part}");
    }

    pub fn build() {
        let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
        if system != "linux" {
            fail(&format!("the target's system is {system}; expected linux"));
        }
        let (folder, file) = sources();
        let recipe = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) => fail(&format!("{}: {error}", file.display())),
        };
        let folder = folder.canonicalize().expect("it was just read from");
        println!("cargo:rerun-if-changed=build.rs");
        println!("cargo:rerun-if-changed={}", file.display());
        for name in ["src", "include"] {
            println!("cargo:rerun-if-changed={}", folder.join(name).display());
        }
        println!("cargo:include={}", folder.join("include").display());
        // Objects have the sources' names below this folder; absolute names would collide in old
        // versions of cc (api/cache.c, heap/cache.c).
        if let Err(error) = env::set_current_dir(folder.join("src")) {
            fail(&format!("{}: {error}", folder.join("src").display()));
        }
        let output = env::var("OUT_DIR").expect("cargo sets it");
        println!("cargo:rustc-link-search=native={output}");
        let without = if cfg!(feature = "malloc") { 0 } else { 2 };
        for part in &PARTS[without..] {
            compile(&recipe, part, &folder.join("include"));
        }
    }
}
