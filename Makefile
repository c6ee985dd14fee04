# Every target is a command or a few that one could type.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)

# Many tests wait for a peer or a child process, so more of them run at once than there are cores.
TEST_THREADS := $(shell n=$$(nproc 2>/dev/null || echo 1); [ $$n -gt 4 ] && echo $$n || echo 4)

# Tests add a line to this file for what they could not test on this machine.
export KOLO_NOT_TESTED := $(TARGET)/not-tested

.PHONY: help test test-all format lint test-features test-workspace test-default test-mpi test-mpich test-cluster test-browser test-hlog test-horovod soak bench quick man peers horovod tensorflow dist vendor \
	typst paper test-paper reference test-reference

help:
	@echo "make test      formatting and tests; needs Rust and a C linker only"
	@echo "make test-all  also lints, documentation, larger ranges, MPI, MPICH, Slurm, Chromium; as root on"
	@echo "               Debian it installs what is missing"
	@echo "make quick     the quick sweep: results and figures in results/"
	@echo "make soak      ten minutes of random allreduces, and a million worlds of control planes"
	@echo "make peers     our allreduce against Open MPI and MPICH on this machine (installs both)"
	@echo "make bench     tables of reference times on this machine, and criterion benches"
	@echo "make horovod   real Horovod with PyTorch in target/horovod, for kolo against horovod; as root on Debian"
	@echo "make dist      a build with LTO, for publishing"
	@echo "make man       manual pages of all commands in target/man"
	@echo "make reference measures what the paper shows on this machine again, into results/reference-here, and compares"
	@echo "make paper     paper/kolo.pdf and paper/kolo.html from results/reference, or from RESULTS=FOLDER; needs Python"
	@echo "make vendor    the repository and all crates as an archive, for a cluster without network"

test:
	@mkdir -p $(TARGET) && : >$(KOLO_NOT_TESTED)
	@$(MAKE) --silent format
	RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --locked --workspace
	@.ci/tools.sh not-tested

format:
	@if $(CARGO) fmt --version >/dev/null 2>&1; then \
		echo "$(CARGO) fmt --all --check" && $(CARGO) fmt --all --check; \
	else echo "formatting: rustfmt is missing (rustup component add rustfmt)" >>$(KOLO_NOT_TESTED); fi

# The tests of `make test` with every feature and over all worlds, those that features change without them, too, and more.
# The release build takes what the tests leave idle of the processors.
test-all:
	-@.ci/tools.sh install
	@mkdir -p $(TARGET) && .ci/tools.sh missing >$(KOLO_NOT_TESTED)
	@$(MAKE) --silent format
	@nice -n 19 $(CARGO) build --quiet --locked --release & \
		trap "kill $$! 2>/dev/null" EXIT; $(MAKE) test-features && wait $$!
	$(CARGO) run --locked --release -- sweep configs/quick.toml --out $(TARGET)/quick-$$(date -u +%Y-%m-%dT%H%M%SZ)
	$(MAKE) test-default
	@if python3 -c "import tomllib" 2>/dev/null; then $(MAKE) test-reference; \
		else echo "reference runs: their script needs Python 3.11" >>$(KOLO_NOT_TESTED); fi
	@if .ci/tools.sh parts | grep -qx hlog && $(MAKE) --silent $(HDRHISTOGRAM)/installed; then $(MAKE) test-hlog; \
		else echo "logs of latencies: HdrHistogram's readers need Java with libhdrhistogram-java, and the Python package \
		index" >>$(KOLO_NOT_TESTED); fi
	@if $(MAKE) --silent typst; then $(MAKE) test-paper; \
		else echo "the paper was not tested: Typst comes from the Python package index"; fi
	@.ci/tools.sh not-tested
	@[ -z "$$KOLO_CI" ] || [ ! -s $(KOLO_NOT_TESTED) ]

# What needs no release build.
test-features:
	@if $(CARGO) clippy --version >/dev/null 2>&1; then $(MAKE) lint; fi
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	$(MAKE) test-workspace
	$(CARGO) test --locked -p algorithms --features mutations --test mutations
	@for part in mpich cluster; do \
		if .ci/tools.sh parts | grep -qx $$part; then $(MAKE) test-$$part || exit 1; fi; done

# Every feature that can be built here. The second run has the same features and MPI, so Cargo reuses all that MPI does not change.
LINTED := algorithms/mutations,plots/pdf,kolo/parquet

lint:
	$(CARGO) clippy --locked --workspace --all-targets --features $(LINTED) -- -D warnings
	@if .ci/tools.sh parts | grep -qx mpi; then set -x; $(CARGO) clippy --locked \
		--workspace --all-targets --features $(LINTED),kolo/mpi -- -D warnings; fi

# One build of the workspace for all tests below: figures as PDF and samples by columns are 75 crates more, which need nothing
# but a C compiler; what drives Chromium is 30 more, where it is; MPI where it is.
TESTED = kolo/parquet,plots/pdf$(shell .ci/tools.sh parts | grep -qx browser && echo ,report/browser)
WITH_MPI = --locked --workspace --features $(TESTED),kolo/mpi
WITH_ALL = --locked --workspace --features $(TESTED)$(shell .ci/tools.sh parts | grep -qx mpi && echo ,kolo/mpi)

# All tests of the workspace over all worlds, those of ranks as processes under Open MPI and of reports in Chromium included.
test-workspace:
	RUST_TEST_THREADS=$(TEST_THREADS) KOLO_ALL_WORLDS=1 KOLO_SOAK_SECONDS=30 KOLO_FUZZ_SECONDS=30 \
		$(CARGO) test $(WITH_ALL)
	@if [ -x $(TARGET)/horovod/bin/python ] && .ci/tools.sh parts | grep -qx mpi; then $(MAKE) test-horovod; fi

# What a build without any feature does, and says: tests that are built already run the release build of the quick sweep.
test-default:
	$(CARGO) build --locked --release
	KOLO_DEFAULT_BUILD=$(TARGET)/release/kolo $(CARGO) test $(WITH_ALL) --test all -- \
		--include-ignored --skip real_horovod builds_without slurm::submit cli::against

# Ranks as processes: the suite under Open MPI in worlds of several sizes.
test-mpi:
	$(CARGO) test $(WITH_MPI) --test mpi
	$(CARGO) test $(WITH_MPI) --test all -- nccl::training cli::against columnar

# A case by the engine beside real Horovod.
test-horovod:
	KOLO_HOROVOD_PYTHON=$(TARGET)/horovod/bin/python $(CARGO) test $(WITH_MPI) --test all -- --ignored real_horovod

# The same suite under MPICH. Another setting for mpi-sys makes Cargo keep this build apart from Open MPI's.
test-mpich:
	MPICC=mpicc.mpich $(CARGO) test --config 'profile.dev.package.mpi-sys.opt-level=1' $(WITH_MPI) --test mpi

# sbatch on virtual nodes with real Slurm daemons, and everything that breaks there.
test-cluster:
	$(CARGO) test $(WITH_MPI) --test cluster --no-run
	$(CARGO) build --locked -p switch
	KOLO=$(TARGET)/debug/kolo slurm/test-virtual-cluster
	KOLO_CLUSTER_TESTS=1 $(CARGO) test $(WITH_MPI) --test cluster

# Reports in Chromium, driven by headless_chrome.
test-browser:
	$(CARGO) test $(WITH_ALL) --test browser

# HdrHistogram's readers in Python and Java, on a log of a sweep.
HDRHISTOGRAM := $(TARGET)/hdrhistogram-0.10.8

$(HDRHISTOGRAM)/installed:
	@python3 -m venv $(HDRHISTOGRAM) && $(HDRHISTOGRAM)/bin/pip install --quiet hdrhistogram==0.10.8 && touch $@ || { \
		rm -rf $(HDRHISTOGRAM); exit 1; }

test-hlog: $(HDRHISTOGRAM)/installed
	KOLO_HDRHISTOGRAM_PYTHON=$(HDRHISTOGRAM)/bin/python $(CARGO) test $(WITH_ALL) --test all -- \
		--ignored other_readers

soak:
	KOLO_SOAK_SECONDS=600 $(CARGO) test --locked --release -p transports --test all soak -- --nocapture
	$(CARGO) run --locked --release -- verify --control-planes 1000000

quick:
	$(CARGO) run --locked --release -- sweep configs/quick.toml

man:
	$(CARGO) run --locked --release -- man --out target/man

bench:
	$(CARGO) bench --locked --workspace

peers:
	harness/transports/peers/run.sh results/peers-$$(date -u +%Y-%m-%dT%H%M%SZ).csv

# Some minutes; nothing is done if it is up to date.
horovod:
	harness/against/install.sh $(TARGET)/horovod

# For the recordings of tf.distribute; TensorFlow 2.15 has wheels up to Python 3.11.
tensorflow:
	python3 -m venv $(TARGET)/tensorflow
	$(TARGET)/tensorflow/bin/pip install --quiet --requirement harness/against/tf_distribute/requirements.txt

dist:
	$(CARGO) build --locked --profile dist
	@echo "$(TARGET)/dist/kolo"

# Typst is a Python wheel. Figures are drawn for columns if the release build can do that.
TYPST := $(TARGET)/typst-0.15.2

typst: $(TYPST)/installed

$(TYPST)/installed:
	@python3 -m venv $(TYPST) && $(TYPST)/bin/pip install --quiet typst==0.15.2 && touch $@ || { rm -rf $(TYPST); \
		echo "no Typst: needs python3 with venv, and a network once (pip install typst==0.15.2)" >&2; exit 1; }

paper: $(TYPST)/installed
	$(TYPST)/bin/python paper/build.py --kolo $(TARGET)/release/kolo $(if $(RESULTS),--results $(RESULTS))

# A quarter of an hour on two cores; an interrupted one goes on. ACCEPT=1 replaces the runs in results/reference, RUN="quick losses" chooses.
reference:
	$(CARGO) build --release --locked -p kolo
	python3 paper/reference.py --kolo $(TARGET)/release/kolo $(RUN) $(if $(ACCEPT),--accept)

test-reference:
	python3 paper/test_reference.py

test-paper: $(TYPST)/installed
	$(TYPST)/bin/python paper/test.py

# Unpacked elsewhere, slurm/build.sh builds it without a network.
vendor:
	rm -rf target/vendor && mkdir -p target/vendor
	git archive --prefix=kolo/ HEAD | tar -x -C target/vendor
	mkdir target/vendor/kolo/.cargo
	cd target/vendor/kolo && $(CARGO) vendor --locked > .cargo/config.toml
	tar -czf target/kolo-vendored.tar.gz -C target/vendor kolo
	@echo "target/kolo-vendored.tar.gz"
