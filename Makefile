# What to build, show and test. `make help` lists it.

PREFIX ?= /usr/local
SBIN ?= /sbin
# Where cargo builds, and what is made goes.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
BINARY := $(TARGET)/release/mortar
PJDFSTEST := $(TARGET)/tools/bin/pjdfstest
MORTAR_BIN ?= $(TARGET)/debug/mortar

# What the tests use beside cargo: program and the Debian package that has it.
TOOLS := git:git fusermount3:fuse3 ip:iproute2 nft:nftables setpriv:util-linux nsenter:util-linux mount:mount \
  mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs xfs_io:xfsprogs tar:tar diff:diffutils strace:strace promtool:prometheus \
  curl:curl openssl:openssl python3:python3

.PHONY: help build demo test check programs unit fuzz fuzzing e2e tools install uninstall packages docs acceptance

help: ## this list
	@sed -n 's/^\([a-z0-9]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

build: ## the release binary: target/release/mortar
	cargo build --release --locked -p mortar

demo: build ## three servers on this machine, a mounted replica volume, what to try next
	$(BINARY) demo

# Programs that are built once, for one run: nothing is kept for the next build, debuggers get no lines, and no crate is compiled in
# parts. The fuzzer has one thread.
test: export CARGO_INCREMENTAL := 0
test: export CARGO_PROFILE_DEV_CODEGEN_UNITS := 1
test: export CARGO_PROFILE_DEV_DEBUG := false
test: tools ## all that CI runs: format, lints, unit tests, simulation, fuzzing, end-to-end tests
	$(MAKE) programs
	$(MAKE) -j2 check fuzzing
	$(MAKE) unit e2e

check: ## format and lints
	cargo fmt --all --check
	cargo clippy --workspace --locked --all-targets -- -D warnings
	cargo clippy --workspace --locked --test e2e -- -D warnings

programs: ## the programs of all tests
	cargo build --workspace --locked --lib --bins --tests
	cargo test --workspace --locked --test e2e --no-run

unit: ## unit tests, house rules and simulation
	cargo test --workspace --locked --lib --bins --tests

fuzz: ## a minute of random and mutated bytes for every decoder
	cargo build --workspace --locked --bin fuzz
	$(MAKE) fuzzing

# Without cargo, which would wait for the lints that run beside it.
fuzzing:
	$(TARGET)/debug/fuzz --seconds 60

# The binary has assertions and checks of overflows, as unit tests have them. To build the release binary takes longer than these tests
# would gain by it; `make build e2e MORTAR_BIN=target/release/mortar` takes that one.
#
# More threads than tests that look at the clock, which wait until the others have ended (harness/turn.rs): three run at a time
# for each core.
e2e: programs $(PJDFSTEST) ## end-to-end tests: real servers and mounts; needs root and /dev/fuse
	MORTAR_BIN=$(abspath $(MORTAR_BIN)) PJDFSTEST=$(PJDFSTEST) cargo test --workspace --locked --test e2e -- --test-threads 80

# An outside suite, from the registry.
$(PJDFSTEST):
	cargo install --locked --quiet --debug --root $(dir $(@D)) --target-dir $(TARGET)/suites pjdfstest --version 0.2.2

acceptance: build ## what other people's programs say: man, bash, zsh, Prometheus, Chromium; as root, installs them
	MORTAR_BIN=$(BINARY) scripts/acceptance

MDBOOK := mdbook@0.5.4
docs: build ## the documentation as a site, with a reference of commands, options and errors: target/docs/index.html
	$(BINARY) manual --reference docs/reference
	cargo install --locked --root $(TARGET)/tools $(MDBOOK)
	$(TARGET)/tools/bin/mdbook build docs

# A static binary of glibc: rustup has no target of musl on a bare machine, and glibc finds names by /etc/hosts and DNS
# without any shared library. cargo-deb and cargo-generate-rpm come from crates.io, into target/tools. They look for the
# binary where cargo puts it, and for pages and completions in the folder target/package of this tree.
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
CARGO_DEB := cargo-deb@3.8.0
CARGO_RPM := cargo-generate-rpm@0.21.1
# The same under a lower version: what the test of the packages upgrades from.
OLDER := 0.0.1
DIST = $(TARGET)/$(HOST)/dist/mortar
packages: ## a .deb and a .rpm in target/packages: one static binary, units, manual pages, completions
	RUSTFLAGS="-C target-feature=+crt-static -C force-unwind-tables=no" cargo build --locked --profile dist --target $(HOST) -p mortar
	@size=$$(stat -c %s $(DIST)); echo "$(DIST): $$size bytes"; [ $$size -lt 15000000 ] || { echo "15,000,000 are the limit" >&2; exit 1; }
	rm -rf target/package $(TARGET)/packages && mkdir -p target/package $(TARGET)/packages/older
	$(DIST) manual target/package/man
	$(DIST) completions bash > target/package/mortar.bash
	$(DIST) completions zsh > target/package/_mortar
	$(DIST) completions fish > target/package/mortar.fish
	cargo install --locked --root $(TARGET)/tools $(CARGO_DEB) $(CARGO_RPM)
	PATH="$(TARGET)/tools/bin:$$PATH" cargo deb --no-build --profile dist --target $(HOST) -p mortar -o $(TARGET)/packages/
	PATH="$(TARGET)/tools/bin:$$PATH" cargo deb --no-build --profile dist --target $(HOST) -p mortar --deb-version $(OLDER) -o $(TARGET)/packages/older/
	PATH="$(TARGET)/tools/bin:$$PATH" cargo generate-rpm -p crates/mortar --profile dist --target $(HOST) -o $(TARGET)/packages/

# Debian packages, only if something is missing. Without root it is named instead.
tools:
	@missing=; for t in $(TOOLS); do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v "$${t%%:*}" >/dev/null || missing="$$missing $${t##*:}"; done; \
	if [ -z "$$missing" ]; then echo "tools for the tests: all present"; \
	elif [ "$$(id -u)" = 0 ]; then \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; \
	else echo "install as root: apt-get install$$missing" >&2; exit 1; fi

install: ## the binary into PREFIX/bin, and the link for `mount -t mortar` (as root, after make build)
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/mortar
	mkdir -p $(DESTDIR)$(SBIN)
	ln -sfn $(PREFIX)/bin/mortar $(DESTDIR)$(SBIN)/mount.mortar
	ln -sfn $(PREFIX)/bin/mortar $(DESTDIR)$(SBIN)/mount.fuse.mortar

uninstall: ## what install made
	rm -f $(DESTDIR)$(PREFIX)/bin/mortar $(DESTDIR)$(SBIN)/mount.mortar $(DESTDIR)$(SBIN)/mount.fuse.mortar
