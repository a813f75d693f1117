# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Every target does its own set-up (Debian packages, .venv, Meson) and is quick
# when that has been done. Meson does the building; see meson.build.
#
# Programs: build, install, uninstall, wheel, deb, dist, demo, release, docs. Checks: test (with lint, sanitizers and fuzz
# targets), test-all, lint (with clang-tidy and the messages of commits), coverage (lines run, by folder). Else: bench,
# format, clean.

.PHONY: build install uninstall wheel dist deb demo docs release test test-all bench lint coverage format clean
.DEFAULT_GOAL := build

# The user's variables are for other programs in Python than those that are run here.
unexport PYTHONHOME PYTHONPATH PYTHONPLATLIBDIR PYTHONSTARTUP PYTHONWARNINGS

build:
	@scripts/build

# Libraries, the command, manual pages and completions under $(DESTDIR)$(PREFIX); docs/install.md lists them.
# `make uninstall` with these values takes away all of it.
PREFIX ?= /usr/local
install: build
	@scripts/venv command
	@.venv/bin/python scripts/install.py install "$(PREFIX)" "$(DESTDIR)"

uninstall:
	@scripts/venv command
	@.venv/bin/python scripts/install.py uninstall "$(PREFIX)" "$(DESTDIR)"

# Both libraries and the command as a package for pip, in build/wheel.
wheel:
	@scripts/wheel

# The last commit's sources in build/meson-dist, with checksum and Meson wrap (packaging/README.md).
dist: build
	@scripts/dist

# Debian packages of the last commit in build-deb (packaging/README.md).
deb: build
	@scripts/deb

# Builds what it runs, a fifth of the whole.
demo:
	@./kmem demo

# The documentation as pages that a browser reads without a server, build-site/html/index.html.
docs: build
	@scripts/venv docs
	@.venv/bin/python scripts/documentation/build.py

# Files of a release in build-release, with checksums, and the tag (scripts/release). Refuses a tree that is not clean.
release:
	@scripts/release

bench: build
	@./kmem bench micro --json build/bench-micro.json
	@./kmem bench bulk --json build/bench-bulk.json

# About 50 minutes on two processors, the first time: what continuous integration runs.
test:
	@scripts/test quick

# Everything: at most 80 minutes, and longer for other releases of Debian.
test-all:
	@scripts/test all

# The form of sources and of commits' messages, and clang-tidy's checks (.clang-tidy). A step of `make test`.
lint: build
	scripts/check-commits
	scripts/venv test
	.venv/bin/ruff check packaging python tests scripts tools
	.venv/bin/ruff format --check packaging python tests scripts tools
	.venv/bin/mypy
	@.venv/bin/pytest --collect-only -qq tests >build/collected.txt || { cat build/collected.txt; exit 1; }
	scripts/debian-packages clang-format clang-tidy shellcheck
	git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror
	shellcheck .ci/run kmem packaging/rust/bundle scripts/abi scripts/build scripts/build-aarch64 scripts/check-commits \
		scripts/deb scripts/debian-packages scripts/dist scripts/progress scripts/recorded/init scripts/recorded/init-compared scripts/release \
		scripts/test scripts/venv scripts/wheel
	.venv/bin/python scripts/tidy.py

# Which lines the C tests of `make test` run, by folder: at most 10 minutes.
coverage:
	scripts/build tests
	scripts/venv test
	.venv/bin/python scripts/coverage.py

format:
	scripts/venv test
	.venv/bin/ruff check --fix-only --quiet packaging python tests scripts tools
	.venv/bin/ruff format packaging python tests scripts tools
	scripts/debian-packages clang-format
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build build-aarch64 build-aarch64-auto build-asan build-clang build-compilers build-booted \
		build-coverage build-deb build-fuzz build-ports build-release build-releases build-site \
		build-tsan
