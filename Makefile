# Everything is done from here; `make` alone lists it. What a target does is in scripts/, where it can be called too.
.DEFAULT_GOAL := help
.PHONY: help build cross release-check build-bench build-demo dev run demo demo-all demo-deps demo-etcd demo-zookeeper demo-redis test test-slow test-postgres test-clients test-integrations check-openapi test-deps lint bench bench-locks bench-tables bench-names bench-cpu soak fuzz hostile random test-citus mutants chaos chaos-safeguards failovers drill screenshots golden golden-check docs verify

# The SDK, its adapters, and the packages of these modules, all of which the main module uses.
SDK          := lockclient lockclient/pgxguard lockclient/gocronlock
SDK_PACKAGES := github.com/fencegate/fencegate/lockclient/...
# Modules of their own: the benchmarks, the demos with locks of other services, and the examples.
BENCH := internal/test/bench
EXTERNAL := demo/external
EXAMPLES := examples/go
# Modules that import what is large: Docker Compose, Kubernetes' client, Helm, testcontainers-go.
INTEGRATIONS := lockclient/k8slock deploy/compose deploy/kubernetes internal/test/testenv/postgres/container

# The systems of a release, beside linux/amd64, which every other target builds.
SYSTEMS := linux/arm64 darwin/amd64 darwin/arm64 freebsd/amd64 windows/amd64

# Overridable: make test PACKAGES=./migrations TEST_FLAGS='-run TestScenarios -v'; make test MODULE=internal/test/bench
MODULE     ?= .
PACKAGES   ?= ./... $(if $(filter .,$(MODULE)),$(SDK_PACKAGES))
TEST_FLAGS ?=
# auto: with the race detector where it can be built; 1: always; 0: never.
RACE       ?= auto
# What test leaves to test-slow: tests of this name, and the packages that have some.
SLOW          := ^TestSlow_
SLOW_PACKAGES  = $(addprefix ./,$(sort $(dir $(shell grep -rl --include='*_test.go' '^func TestSlow_' \
  cmd deploy docs gateway internal migrations store))))
RUN_FLAGS  ?=
BENCH_FLAGS ?=
# The versions that test-postgres runs the database's tests on, and those tests.
POSTGRES_VERSIONS ?= 16 17 18
POSTGRES_PACKAGES ?= ./migrations/... ./store/... ./internal/test/faults ./internal/test/chaos
# The version that random runs on, fetched by npm; by default the installed one.
POSTGRES_VERSION ?=
# The schedule of make chaos: SEED is drawn if it is not given; WITHOUT switches off a safeguard, which must be found.
SEED     ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
DURATION ?= 30m
WITHOUT  ?=
# What make mutants breaks: all, unless it is given.
ONLY          ?=
MUTANTS_FLAGS ?=
# With FRESH=1 the second build of release-check compiles in an empty cache of Go.
FRESH ?=
# How many connections make hostile opens. Each needs two file descriptors (ulimit -n).
CONNECTIONS ?= 9000
# How many inputs each fuzz target is given (5000x), or how long it runs (60s).
FUZZ_TIME  ?= 5000x

# Go fails to stamp a program with its commit where git refuses to read the clone (it belongs to another user).
ifneq ($(shell git rev-parse HEAD >/dev/null 2>&1 && echo readable),readable)
export GOFLAGS := $(shell go env GOFLAGS) -buildvcs=false
endif

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/fencegate
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o bin/fencegate ./cmd/fencegate

# Beside bin/fencegate, which it measures.
build-bench: build
	go build -C $(BENCH) -trimpath -o '$(CURDIR)/bin/fencegate-bench' ./fencegate-bench

build-demo: build
	go build -C $(EXTERNAL) -trimpath -o '$(CURDIR)/bin/fencegate-demo' ./fencegate-demo

cross: ## Build the program and the SDK for every system of a release
	@set -e; for system in $(SYSTEMS); do echo "==> $$system"; \
	  GOOS=$${system%/*} GOARCH=$${system#*/} CGO_ENABLED=0 go build -o /dev/null ./cmd/fencegate; \
	  GOOS=$${system%/*} GOARCH=$${system#*/} CGO_ENABLED=0 go build $(SDK_PACKAGES); \
	done

release-check: ## Build all files of a release twice, compare, install and run them, into dist/release; as root (FRESH, half an hour)
	FRESH='$(FRESH)' scripts/release-check

dev: build ## Run everything to try it: a private PostgreSQL, gateway, dashboard, workers that are frozen (RUN_FLAGS)
	scripts/with-postgres bin/fencegate dev $(RUN_FLAGS)

run: build ## Run a gateway alone, with a PostgreSQL of its own unless FENCEGATE_DATABASE_URL is set (RUN_FLAGS)
	scripts/with-postgres bin/fencegate serve $(RUN_FLAGS)

demo: build ## Watch a zombie's write being rejected; installs PostgreSQL's programs if there are none
	scripts/with-postgres bin/fencegate demo zombie

demo-all: build-demo demo-deps ## Run all demos, one after the other; fails if one of them does not end as it must
	scripts/with-postgres scripts/demo-all

demo-deps: ## Install what demo-all needs: Redis, libfaketime
	@scripts/demo-deps

demo-etcd demo-zookeeper demo-redis: demo-%: build-demo
	scripts/with-postgres bin/fencegate-demo $*

demo-etcd: ## Watch the write of a zombie of an etcd lock being rejected; needs etcd
demo-zookeeper: ## The same with a ZooKeeper lock; needs ZooKeeper (Debian's libzookeeper-java, or ZOOKEEPER_CLASSPATH)
demo-redis: ## The same with a Redis lock; needs Redis

test: ## Run the tests, but the slow ones, with the race detector if there is a C compiler (PACKAGES, TEST_FLAGS, RACE)
	@RACE='$(RACE)' scripts/test $(MODULE) -skip '$(SLOW)' $(TEST_FLAGS) $(PACKAGES)

test-slow: ## Run the tests that take long and rarely fail: images, pictures; benchmarks, demos of other locks (TEST_FLAGS)
	@status=0; RACE=0 scripts/test . -run '$(SLOW)' $(TEST_FLAGS) $(SLOW_PACKAGES) || status=$$?; \
	for module in $(BENCH) $(EXTERNAL); do RACE=0 scripts/test $$module $(TEST_FLAGS) ./... || status=$$?; done; \
	exit $$status

test-postgres: ## Run the tests of the database on other versions of PostgreSQL, fetched by npm (POSTGRES_VERSIONS, POSTGRES_PACKAGES, TEST_FLAGS)
	@set -e; for version in $(POSTGRES_VERSIONS); do \
	  programs=$$(scripts/fetch-postgres $$version); echo "==> PostgreSQL $$version"; \
	  PATH="$$programs:$$PATH" RACE='$(RACE)' scripts/test $(MODULE) $(TEST_FLAGS) $(POSTGRES_PACKAGES); \
	done

test-clients: ## Run the contract cases with the clients of all languages, and show a table; check their types and quick starts
	@scripts/with-postgres go test ./clients -count=1 -v

test-integrations: ## Run the tests of the modules for Docker, Kubernetes and Helm; Go fetches what they import, once
	@set -e; for module in $(INTEGRATIONS); do RACE=0 scripts/test $$module $(TEST_FLAGS) ./...; done

check-openapi: ## Lint openapi.yaml, and compile the types that openapi-typescript makes of it; npm fetches both
	@scripts/check-openapi

test-deps: ## Install what the tests need beside Go: PostgreSQL's programs, etcd, Redis, libfaketime, Chromium, curl, drivers, a C compiler
	@scripts/test-deps

lint: ## Run the linters, the import rules among them
	@set -e; for module in . $(SDK) $(BENCH) $(EXTERNAL) $(EXAMPLES) $(INTEGRATIONS); do \
	  echo "==> $$module"; (cd $$module && '$(CURDIR)/scripts/golangci-lint' run ./...); \
	done

bench: build-bench ## Measure fenced writes beside unfenced ones, etcd, ZooKeeper and Redis, where those are installed (BENCH_FLAGS)
	scripts/with-postgres bin/fencegate-bench writes --goals $(BENCH_FLAGS)

bench-locks: build-bench ## Measure locks beside etcd's and Redis's, where those are installed (BENCH_FLAGS)
	scripts/with-postgres bin/fencegate-bench locks --goals $(BENCH_FLAGS)

bench-tables: build-bench ## Measure writes to protected tables beside bare ones (BENCH_FLAGS)
	scripts/with-postgres bin/fencegate-bench tables --goals $(BENCH_FLAGS)

bench-names: build-bench ## Measure a database of ten million names beside one of ten thousand (BENCH_FLAGS)
	scripts/with-postgres bin/fencegate-bench names $(BENCH_FLAGS)

bench-cpu: build-bench ## Measure PostgreSQL's CPU time for a call, as a multiple of a bare upsert's; holds on a busy machine (BENCH_FLAGS)
	scripts/with-postgres bin/fencegate-bench cpu $(BENCH_FLAGS)

soak: build-bench ## Load two gateways for 30 minutes, and fail if memory, connections or tables grow (DURATION, BENCH_FLAGS)
	scripts/with-postgres bin/fencegate-bench soak --duration $(DURATION) $(BENCH_FLAGS)

fuzz: ## Run every fuzz target for a short while (FUZZ_TIME, PACKAGES)
	@FUZZ_TIME='$(FUZZ_TIME)' scripts/with-postgres scripts/fuzz $(PACKAGES)

hostile: ## Open connections that send nothing, never end, or take no answers; check memory and honest clients (CONNECTIONS)
	FENCEGATE_CONNECTIONS='$(CONNECTIONS)' scripts/with-postgres go test ./gateway -run 'TestHostile(Connections|Memory)$$' -parallel 1 -count=1 -v

# Some ten minutes; with Patroni and etcd. FENCEGATE_PATRONI names another Patroni than the one on the PATH.
failovers: ## Fail over in every way, under load, and show a table of what each cost
	@table=$$(mktemp); GOFLAGS="$$GOFLAGS -trimpath" scripts/with-postgres go test ./internal/test/faults -run 'TestFailovers$$' \
	  -failovers.table "$$table" -count=1 -timeout 60m; status=$$?; cat "$$table"; rm -f "$$table"; exit $$status

drill: ## Lose a database under load, restore it from a backup, and show how long each step took
	GOFLAGS="$$GOFLAGS -trimpath" scripts/with-postgres go test ./internal/test/faults -run 'TestSlow_Drill$$' -count=1 -v

random: ## Check guarded transactions of random SQL clients, for DURATION at each isolation level (DURATION, POSTGRES_VERSION)
	@set -e; if [ -n '$(POSTGRES_VERSION)' ]; then PATH="$$(scripts/fetch-postgres '$(POSTGRES_VERSION)'):$$PATH"; fi; \
	  scripts/with-postgres go test ./migrations -run 'TestGuardAtRandom$$' -count=1 -timeout 0 -v -guard.duration '$(DURATION)'

test-citus: ## Test names on several nodes of Citus, which is the extension of the PostgreSQL that is found (FENCEGATE_CITUS_BIN)
	@GOFLAGS="$$GOFLAGS -trimpath" scripts/test-citus

# All of them take hours, most of which whole tests take: -fast has cases judge alone, -again REPORT judges what survived,
# and Ctrl-C ends a run with its report. ONLY names directories of migrations/guard and functions; MUTANTS_FLAGS: these,
# and -by, -whole, -sample, -seed, -go, -list, -by-hand.
mutants: ## Break the SQL functions by rule, and show in mutants.txt what no test notices (ONLY, MUTANTS_FLAGS)
	scripts/with-postgres go run ./internal/test/mutants -only '$(ONLY)' $(MUTANTS_FLAGS)

chaos: ## Break gateways, databases and the network at random under load, and check the history (SEED, DURATION, WITHOUT)
ifeq ($(WITHOUT),)
	scripts/with-postgres go test ./internal/test/chaos -count=1 -timeout 0 -v -run 'TestChaos$$' -chaos.clock \
	  -chaos.seed '$(SEED)' -chaos.duration '$(DURATION)'
else
	scripts/with-postgres go test ./internal/test/chaos -count=1 -timeout 0 -v -run 'TestSafeguards$$' -chaos.without '$(WITHOUT)'
endif

chaos-safeguards: ## Switch off one safeguard after the other: each violation must be found
	@$(MAKE) chaos WITHOUT=all

screenshots: ## Keep pictures of every page of the dashboard, after a restart of PostgreSQL, with SQL clients alone, and without the database, in artifacts/ (FENCEGATE_ARTIFACTS)
	FENCEGATE_ARTIFACTS='$(abspath $(or $(FENCEGATE_ARTIFACTS),artifacts))' CI=true scripts/with-postgres go test ./internal/test/dashboard -run TestSlow_Screenshots -count=1

golden: ## Rewrite the golden schema from the migrations and guard functions, and those of what users rely on
	scripts/with-postgres go test ./migrations -run 'TestGoldenSchema|TestGuardRevision$$' -update
	go test ./internal/test/surface -update
	go test ./cmd/fencegate -run 'TestSurface$$' -update

golden-check: ## Compare the schema that the migrations make with the golden one
	@scripts/with-postgres scripts/golden-check

docs: ## Rewrite openapi.yaml, docs/observability.md, docs/security.md and the Grafana dashboards from the code
	scripts/with-postgres go test ./gateway/metrics -run 'TestMetricsDoc$$' -update
	go test ./gateway -run 'TestAccessDoc$$' -update
	go test ./internal/test/testenv/openapi -run 'TestSchemasAreTheWireTypes$$' -update
	go run ./deploy/grafana/generate

verify: RACE = 1
verify: lint test test-slow golden-check demo ## Do what CI does on every machine: lint, test with the race detector, slow tests, golden schema, demo
