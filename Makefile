# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Every target does its own set-up (Debian packages, .venv, Meson) and is quick
# when that has been done. Meson does the building; see meson.build.

.PHONY: build install demo test test-all bench lint format clean
.DEFAULT_GOAL := build

# The user's variables are for other programs in Python than those that are run here.
unexport PYTHONHOME PYTHONPATH PYTHONPLATLIBDIR PYTHONSTARTUP PYTHONWARNINGS

build:
	@scripts/build

# Headers, libraries and pkg-config files under $(DESTDIR)$(PREFIX). Meson would take a relative DESTDIR for
# one in build/. Programs find libraries of /usr/local by the dynamic linker's cache only.
PREFIX ?= /usr/local
install: build
	@.venv/bin/meson configure build -Dprefix="$(PREFIX)"
	@DESTDIR="$(if $(DESTDIR),$$(realpath -m -- "$(DESTDIR)"))" PATH="$(CURDIR)/.venv/bin:$$PATH" \
		meson install -C build --quiet
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || PATH="$$PATH:/usr/sbin:/sbin" ldconfig

# Builds what it runs, a fifth of the whole.
demo:
	@./kmem demo

bench: build
	@./kmem bench micro --json build/bench-micro.json
	@./kmem bench bulk --json build/bench-bulk.json

# At most 15 minutes: what continuous integration runs.
test:
	@scripts/test quick

# Everything: at most 80 minutes, and longer for other releases of Debian.
test-all:
	@scripts/test all

lint:
	scripts/venv test
	.venv/bin/ruff check python tests scripts tools
	.venv/bin/ruff format --check python tests scripts tools
	.venv/bin/mypy
	scripts/debian-packages clang-format shellcheck
	git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror
	shellcheck .ci/run kmem scripts/build scripts/build-aarch64 scripts/debian-packages scripts/progress scripts/test scripts/venv

format:
	scripts/venv test
	.venv/bin/ruff check --fix-only --quiet python tests scripts tools
	.venv/bin/ruff format python tests scripts tools
	scripts/debian-packages clang-format
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build build-aarch64 build-aarch64-auto build-clang build-compilers build-booted build-fuzz build-releases
