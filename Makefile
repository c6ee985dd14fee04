# Every target is a command or a few that one could type.

CARGO ?= cargo

.PHONY: help test test-mpi test-mpich test-cluster tools soak bench quick man peers vendor

help:
	@echo "make test    formatting, lints, docs, all tests (MPI and Slurm, too), and the quick sweep"
	@echo "make quick   the quick sweep alone: results and figures in results/"
	@echo "make soak    ten minutes of random allreduces, and a million worlds of control planes"
	@echo "make peers   our allreduce against Open MPI and MPICH on this machine (installs both)"
	@echo "make vendor  the repository and every crate it needs as an archive, for a cluster without network"
	@echo "make man     manual pages of all commands in target/man"
	@echo "make bench   tables of what is to be reached here, and criterion benches"

test: tools
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	KOLO_SOAK_SECONDS=60 $(CARGO) test --locked --workspace
	$(CARGO) test --locked -p algorithms --features mutations --test mutations
	@for part in mpi mpich cluster; do \
		if .ci/tools.sh parts | grep -qx $$part; then $(MAKE) test-$$part || exit 1; fi; done
	$(MAKE) quick
	@for part in mpi mpich cluster kernels; do .ci/tools.sh parts | grep -qx $$part || { \
		echo "NOT TESTED here: $$part (.ci/tools.sh says what it takes)"; \
		[ -z "$$KOLO_CI" ] || exit 1; }; done

# Ranks as processes: lints, units, and the suite under Open MPI in worlds of several sizes.
test-mpi:
	$(CARGO) clippy --locked -p harness --features mpi --all-targets -- -D warnings
	$(CARGO) test --locked -p harness --features mpi --lib --test mpi
	$(CARGO) test --locked -p harness --features mpi --test nccl training

# The same suite under MPICH, which has a build of its own.
test-mpich:
	MPICC=mpicc.mpich $(CARGO) test --locked -p harness --features mpi --test mpi --target-dir target/mpich

# sbatch on virtual nodes with real Slurm daemons, and everything that breaks there.
test-cluster:
	$(CARGO) build --locked -p harness --features mpi
	export KOLO=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug/kolo; slurm/test-virtual-cluster || \
		{ echo "once more"; slurm/test-virtual-cluster; }
	KOLO_CLUSTER_TESTS=1 $(CARGO) test --locked -p harness --features mpi --test cluster

# What rustup may have left out, and what MPI and Slurm take.
tools:
	@$(CARGO) --version >/dev/null || { echo "Rust is missing: see https://rustup.rs"; exit 1; }
	@$(CARGO) fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@$(CARGO) clippy --version >/dev/null 2>&1 || rustup component add clippy
	@.ci/tools.sh install

soak:
	KOLO_SOAK_SECONDS=600 $(CARGO) test --locked --release -p harness --test soak -- --nocapture
	$(CARGO) run --locked --release -- verify --control-planes 1000000

quick:
	$(CARGO) run --locked --release -- sweep configs/quick.toml

man:
	$(CARGO) run --locked --release -- man --out target/man

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
