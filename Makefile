# Every target is a command or a few that one could type.

CARGO ?= cargo

.PHONY: help test tools soak bench quick peers vendor

help:
	@echo "make test    formatting, lints, docs, all tests, and the quick sweep"
	@echo "make quick   the quick sweep alone: results and figures in results/"
	@echo "make soak    ten minutes of random allreduces, and a million worlds of control planes"
	@echo "make peers   our allreduce against Open MPI and MPICH on this machine (installs both)"
	@echo "make vendor  the repository and every crate it needs as an archive, for a cluster without network"
	@echo "make bench   tables of what is to be reached here, and criterion benches"

test: tools
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	KOLO_SOAK_SECONDS=60 $(CARGO) test --locked --workspace
	$(CARGO) test --locked -p algorithms --features flaws --test rehearsals
	$(MAKE) quick

# What rustup may have left out.
tools:
	@$(CARGO) --version >/dev/null || { echo "Rust is missing: see https://rustup.rs"; exit 1; }
	@$(CARGO) fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@$(CARGO) clippy --version >/dev/null 2>&1 || rustup component add clippy

soak:
	KOLO_SOAK_SECONDS=600 $(CARGO) test --locked --release -p harness --test soak -- --nocapture
	$(CARGO) run --locked --release -- verify --control-planes 1000000

quick:
	$(CARGO) run --locked --release -- sweep configs/quick.toml

bench:
	$(CARGO) bench --locked --workspace

peers:
	harness/peers/run.sh results/peers-$$(date -u +%Y-%m-%dT%H%M%SZ).csv

# Unpacked elsewhere, slurm/build.sh builds it without a network.
vendor:
	rm -rf target/vendor && mkdir -p target/vendor
	git archive --prefix=kolo/ HEAD | tar -x -C target/vendor
	mkdir target/vendor/kolo/.cargo
	cd target/vendor/kolo && $(CARGO) vendor --locked > .cargo/config.toml
	tar -czf target/kolo-vendored.tar.gz -C target/vendor kolo
	@echo "target/kolo-vendored.tar.gz"
