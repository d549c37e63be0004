# Holdfast. `make` lists the targets. Everything here needs Go, interop some more; PostgreSQL is found, fetched or
# installed by what runs.
.DEFAULT_GOAL := help

SHELL    := /bin/bash
TOOLS    := bin/sqlc bin/golangci-lint
FUZZTIME ?= 30s
MODELRUNS ?= 150
# Tests that need more than Go and PostgreSQL; they are in steps of test-all.
APART    = /integration/|/(interop|bench|examples|examples/webhooks)$$
PACKAGES ?= $(shell go list ./... | grep -vE '$(APART)')
# What takes longest goes first: at the end it would run alone.
FIRST    = %/internal/store %/sdk/conformance %/internal/pg/pgembed %/internal/upkeep/retention
ordered  = $(filter $(FIRST),$1) $(filter-out $(FIRST),$1)
# For one package that hangs; a test that waits in vain fails earlier.
TIMEOUT  ?= 30m
COUNT    ?= 1
# With RACE=1, make test runs under the race detector, which needs a C compiler.
RACE     ?=
VERSION  ?= 18
TESTFLAGS ?=
VULNDB   ?= https://vuln.go.dev
PROSE    ?= warning
CHAOS    ?= 10m
SOAK     ?= 2h
# Which benchmarks, and for how long each.
BENCH     ?= .
BENCHTIME ?= 3s
export BENCH BENCHTIME TURNS

# Runs go test, and says how many tests ran.
GOTEST = bin/gotestsum --format pkgname --format-hide-empty-pkg --hide-summary skipped --
# Servers are built first, so that no test compiles.
PREBUILD = go run ./internal/test/clustertest/prebuild
CLUSTERS = $(filter-out %/documents %/compose,$(shell go list ./integration/...))

PYTHONS  ?= python3

# As releases are built: without debug symbols, but traces of panics keep names and lines. Not to make the symbols first saves a tenth
# of the compiler's time. Without the tag, a page of gRPC that nothing serves calls methods by name, for which the linker keeps all
# exported methods of the binary: 5 MB.
BUILD = CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -gcflags=all=-dwarf=false -ldflags='-s -w'

.PHONY: help run build image test test-container test-all nightly busy clusters documents postgres test-postgres test-postgres-all test-pooler chaos chaos-workers durable soak compose-test memory interop interop-fronts interop-ring torture-peers size check lint prose fmt generate sqlc-vet vuln bench fuzz model conformance cover clean bench-compare sdk sdk-python sdk-python-adapters sdk-samples sdk-typescript sdk-conformance dist dist-server dist-python dist-typescript console site console-check console-test console-heap console-screenshots console-dev upgrade failover-drill kubernetes kubernetes-update release-check

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# exec: Ctrl-C reaches the server and nothing that would report its end as an error.
run: build ## serve the demo agent on http://127.0.0.1:8080, with a database in ./.holdfast
	@exec bin/holdfast serve

build: ## a static binary, bin/holdfast
	@echo "go build: the first time, this compiles every package and takes minutes"
	$(BUILD) -v -o bin/holdfast ./cmd/server

# Tests wait more than they compute, so twice as many packages run at a time as there are cores.
test: bin/gotestsum ## what decides whether a change is right: five minutes, Go and PostgreSQL. RACE=1, COUNT=20, PACKAGES, TESTFLAGS
	bin/gotestsum --format pkgname --format-hide-empty-pkg --hide-summary skipped --jsonfile-timing-events bin/test.json -- \
		$(if $(RACE),-race) -count=$(COUNT) -timeout $(TIMEOUT) -shuffle=on -p $$((2 * $$(getconf _NPROCESSORS_ONLN))) $(TESTFLAGS) \
		$(call ordered,$(PACKAGES))
	@echo "the slowest:"; bin/gotestsum tool slowest --num 10 --jsonfile bin/test.json

test-container: ## make test on a PostgreSQL in Docker
	go run ./internal/test/storetest/container $(MAKE) test

test-all: ## make test and everything else that needs no day: 40 minutes. RECORD=1 writes the result into docs/reliability.md
	@.ci/suite run test-all

nightly: ## what takes hours: long chaos, soak, model, all versions of PostgreSQL, other clients and peers, make busy. RECORD=1
	@.ci/suite run nightly

busy: ## make test COUNT times (20) beside four processes that keep all cores busy: no test may fail
	@for i in 1 2 3 4; do (while :; do :; done) & done; trap 'kill $$(jobs -p)' EXIT; $(MAKE) --no-print-directory test COUNT=$(if $(filter 1,$(COUNT)),20,$(COUNT))

clusters: bin/gotestsum ## the built server as processes: replicas under kills, faults in short, agents, callers, fronts, operators
	$(PREBUILD)
	$(GOTEST) -count=1 -timeout $(TIMEOUT) -shuffle=on $(TESTFLAGS) $(CLUSTERS)

documents: bin/gotestsum ## the README, the tour and the examples, as written (needs python3 with cryptography and venv, curl, node, haproxy, nginx, caddy)
	$(PREBUILD)
	$(GOTEST) -count=1 -timeout $(TIMEOUT) -shuffle=on $(TESTFLAGS) ./integration/documents ./examples ./examples/webhooks

postgres: ## what depends on PostgreSQL, on the oldest and the newest version
	$(MAKE) --no-print-directory test-postgres VERSION=14
	$(MAKE) --no-print-directory test-postgres VERSION=18

test-postgres: bin/gotestsum ## the same on one version, which it downloads: VERSION=16, or a release such as 18.3
	HOLDFAST_PG_BIN=$$(go run ./internal/pg/pgembed/download $(VERSION)) && export HOLDFAST_PG_BIN && \
		$(GOTEST) -count=1 -timeout $(TIMEOUT) -run 'Plans|Schema|View|Partition|AllOperations|FullQueue' ./internal/store/... ./internal/hub

test-postgres-all: bin/gotestsum ## make test on all versions of PostgreSQL
	set -e; for version in 14 15 16 17 18; do \
		HOLDFAST_PG_BIN=$$(go run ./internal/pg/pgembed/download $$version) $(MAKE) --no-print-directory test; done

test-pooler: bin/gotestsum ## the integration tests behind PgBouncer in transaction mode, with a direct URL for LISTEN (needs pgbouncer)
	HOLDFAST_TEST_POOLER=pgbouncer $(MAKE) --no-print-directory clusters

chaos: ## break a cluster under load for CHAOS (10m), everything that docs/reliability.md names; SEED repeats an order
	go test -count=1 -timeout 0 -run '^TestChaos$$' -v ./integration/faults -chaos $(CHAOS) -chaos.seed $(or $(SEED),0) \
		-chaos.report chaos.md $(CHAOSFLAGS)

soak: ## two replicas under load and faults for SOAK (2h): nothing is lost, and nothing grows; writes integration/faults/soak.svg
	go test -count=1 -timeout 0 -run '^TestSoak$$' -v ./integration/faults -soak $(SOAK) -soak.seed $(or $(SEED),0) -soak.out soak $(SOAKFLAGS)

upgrade: ## roll from the previous version to this one and back under load, with its binary and schema (builds it from the history)
	go test -count=1 -timeout $(TIMEOUT) -run '^TestRollingUpgrade$$' -v ./integration/faults -upgrade

failover-drill: ## seconds of outage and lost tasks when the primary dies or falls silent, with both kinds of replication
	go test -run '^$$' -bench '^BenchmarkFailover$$' -benchtime $(or $(ROUNDS),3)x -timeout $(TIMEOUT) ./integration/faults

chaos-workers: dist/chaos ## the same, with workers of the built packages of Python and TypeScript beside those in Go
	cp integration/faults/remoteworker/worker.* dist/chaos
	$(MAKE) --no-print-directory chaos CHAOSFLAGS="-chaos.workers 'dist/chaos/venv/bin/python dist/chaos/worker.py; node dist/chaos/worker.mjs'"

durable: dist/chaos ## kill workers and replicas KILLS times (170) under durable agents of each language
	cp integration/faults/durableworker/worker.* dist/chaos
	for worker in "" "$(CURDIR)/dist/chaos/venv/bin/python $(CURDIR)/dist/chaos/worker.py" "node $(CURDIR)/dist/chaos/worker.mjs"; do \
		go test -count=1 -timeout 0 -run '^TestDurableAgentsUnderKills$$' -v ./integration/faults \
			-durable.kills $(or $(KILLS),170) -durable.worker "$$worker" || exit; \
	done

# The built packages of Python and TypeScript, installed.
dist/chaos: dist-python dist-typescript
	rm -rf dist/chaos && mkdir dist/chaos
	cd dist/chaos && npm install --prefix . --silent --no-audit --no-fund ../holdfast-agent-*.tgz
	python3 -m venv dist/chaos/venv && dist/chaos/venv/bin/pip install --quiet dist/holdfast_agent-*.whl

memory: ## large loads on a server with 512 MiB of memory (minutes; needs 8 GiB and 10 GB of disk)
	go test -count=1 -timeout 30m -run '^TestMemory$$' -v ./integration/limits -memory.whole

interop: ## the official clients against two replicas (needs npm, and python3 with venv; downloads the clients once)
	go test -tags interop -count=1 -timeout 20m -v ./interop

interop-fronts: ## the first ring through fronts, and fronts of official servers under faults, with 500 tasks each (long)
	HOLDFAST_FRONT_TASKS=500 go test -tags interop -count=1 -timeout 60m -run Front -v ./interop -fronts

interop-ring: ## clients of the second ring: needs Java 17 with mvn, cargo, npm, and python3 with venv
	go test -tags interop -count=1 -timeout 40m -v ./interop -ring2

torture-peers: ## torture servers of others with the agents of examples/torture, and write the table of interop/torture-peers.md (13 minutes, and the installations)
	go test -tags interop -count=1 -timeout 120m -run '^TestTorturePeers$$' -v ./interop -torture -torture.record torture-peers.md

image: site ## the image holdfast:dev, with the documents and the version of the repository
	docker build --target holdfast --tag $(or $(HOLDFAST_IMAGE),holdfast:dev) --build-arg VERSION=$$(git describe --tags --always --dirty) \
		--build-arg COMMIT=$$(git rev-parse HEAD) --build-arg DATE=$$(git log -1 --format=%cI) .

compose-test: ## docker-compose.yml with the Docker daemon, all profiles (minutes; deploy/test/base-images where no registry is reached)
	go test -count=1 -timeout 40m -v ./integration/compose -compose $(COMPOSEFLAGS)

check: lint sqlc-vet ## what a change must pass, beside its tests

lint: $(TOOLS) bin/vale ## formatting, vet, linters, prose, generated code and go.mod up to date
	bin/golangci-lint fmt --diff
	go vet -tags interop ./...
	bin/golangci-lint run
	bin/sqlc diff
	go mod verify
	go mod tidy -diff
	.ci/suite check
	$(MAKE) --no-print-directory prose

prose: bin/vale ## the rules of .vale on documents and comments, after a test of the rules; PROSE=suggestion has long sentences, too
	bin/vale --minAlertLevel=suggestion --output=line --sort .vale/test/{bad,good}.* | diff .vale/test/want.txt -
	git ls-files '*.md' '*.go' ':!:*/testdata/*' ':!:internal/store/internal/dbsqlc' ':!:.vale' | \
		xargs bin/vale --minAlertLevel=$(PROSE) --output=line --sort

sqlc-vet: bin/sqlc ## prepare every query on a migrated database
	go run ./internal/test/storetest/withdb bin/sqlc vet

size: ## how large everything is, beside BASE (the commit of the last green test-all), and at most (tools/budgets)
	@BUILD="$(BUILD)" tools/size "$(or $(BASE),$(shell .ci/suite base))"

vuln: bin/govulncheck ## known vulnerabilities that our code reaches; VULNDB names a copy of the database (file:///...)
	bin/govulncheck -db $(VULNDB) ./...

fmt: bin/golangci-lint ## rewrite the sources in our format
	bin/golangci-lint fmt

generate: bin/sqlc ## rewrite generated code
	bin/sqlc generate
	go generate ./...

bench: ## benchmarks, as tables beside raw limits; bench/README.md has recorded results
	@go test -run '^$$' -bench '$(value BENCH)' -benchtime $(BENCHTIME) -timeout 60m ./bench | tee bench/latest.txt; \
		status=$${PIPESTATUS[0]}; echo; go run ./bench/report <bench/latest.txt && exit $$status

bench-compare: bin/benchstat ## BENCH of the commit BASE and of this tree, TURNS (9) times in turns: medians, spread, and what is chance
	@BENCH='$(value BENCH)' bench/compare $(or $(BASE),$(error BASE is not set: make bench-compare BASE=HEAD~1))

fuzz: ## each fuzz target for FUZZTIME (30s)
	@set -e; grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
		grep -o '^func Fuzz[A-Za-z0-9_]*' "$$file" | while read -r _ target; do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")" </dev/null; \
		done; \
	done

model: ## MODELRUNS (150) sequences of random operations on three replicas against the model; `make clusters` plays two
	go test -run RandomOperations -v -timeout 0 ./integration/faults -model.runs $(MODELRUNS) -model.replicas 3

conformance: ## the public conformance kit of A2A, of which TCK is a clone, and record it in examples/conformance/results.md
	python3 examples/conformance/run.py --record examples/conformance/results.md \
		$(or $(TCK),$(error TCK is not set: make conformance TCK=<clone of https://github.com/a2aproject/a2a-tck>))

sdk: sdk-python sdk-typescript sdk-conformance ## all of the SDKs but the adapters of Python

sdk-python: ## lint, types and tests of the Python SDK, under each of PYTHONS (python3)
	PYTHONS="$(PYTHONS)" sdk/python/check

sdk-python-adapters: ## the adapters of the Python SDK against the frameworks (downloads them once)
	sdk/python/check adapters

sdk-samples: build ## examples/samples as processes beside the built server (downloads their frameworks once)
	sdk/python/check samples

sdk-typescript: build sdk/typescript/node_modules/.package-lock.json ## check the TypeScript SDK: format, linter, types, tests (needs Node 20 with npm)
	cd sdk/typescript && npm run --silent lint && HOLDFAST_BINARY=$(CURDIR)/bin/holdfast npm test --silent

sdk-conformance: dist-typescript ## the conformance suite of the worker API, for the packages of Python and TypeScript (go test runs it for Go)
	sdk/python/check conformance
	rm -rf dist/conformance && mkdir -p dist/conformance && cp sdk/typescript/test/conformance-agent.js dist/conformance/agent.mjs
	cd dist/conformance && npm install --prefix . --silent --no-audit --no-fund ../holdfast-agent-*.tgz
	go test -count=1 ./sdk/conformance -agent 'node agent.mjs' -dir dist/conformance -without block

dist: dist-server dist-python dist-typescript ## packages of the server and of the SDKs, in dist/

dist-server: site ## the server with a PostgreSQL as packages for pip and npm, for PLATFORMS (this machine's; all)
	python3 deploy/packaging/pack.py $(CURDIR)/dist $(PLATFORMS)

dist-python:
	sdk/python/check wheel $(CURDIR)/dist

dist-typescript: sdk/typescript/node_modules/.package-lock.json
	cp LICENSE sdk/typescript/LICENSE
	cd sdk/typescript && rm -rf dist && npm run --silent build
	mkdir -p dist && cd sdk/typescript && npm pack --silent --pack-destination ../../dist

sdk/typescript/node_modules/.package-lock.json: sdk/typescript/package-lock.json
	cd sdk/typescript && npm ci --silent --no-audit --no-fund && touch node_modules/.package-lock.json

console: console/node_modules/.package-lock.json ## build the web console into internal/admin/console/dist, which the binary embeds
	cd console && npm run --silent build

site: bin/site/complete ## build the site of docs/ into internal/admin/console/site, which the binary embeds and serves at /docs/ (needs python3 with venv)
	tools/site/build bin/site/bin/python internal/admin/console/site/site.zip

bin/site/complete: tools/site/requirements.txt
	rm -rf bin/site && python3 -m venv bin/site
	bin/site/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r $<
	touch $@

console-check: console/node_modules/.package-lock.json ## check the console: format, linter, generated types, types, tests, budget, and that dist is what the sources build
	cd console && npm run --silent lint && npm run --silent generated && npm run --silent types && npm test --silent && npm run --silent compare

console-test: console-programs ## the console in Chromium on real servers (needs Debian's chromium); CONSOLE_TEST=jobs runs the files with that name
	cd console && npm run --silent browser -- $(CONSOLE_TEST)

console-screenshots: console-programs bin/site/complete ## the pictures of the documents, also the moving one, into docs/images (needs Debian's chromium)
	rm -rf bin/frames && cd console && FRAMES=$(CURDIR)/bin/frames SCREENSHOTS=1 npm run --silent browser
	bin/site/bin/python tools/site/film bin/frames docs/images/resume.webp

.PHONY: console-programs
console-programs: console
	$(BUILD) -o bin/holdfast ./cmd/server
	$(BUILD) -o bin/withdb ./internal/test/storetest/withdb

console-heap: console/node_modules/.package-lock.json ## a console that is left open for long: its heap must not grow (minutes)
	CONSOLE_HEAP=1 $(MAKE) console-test CONSOLE_TEST=heap

console-dev: console/node_modules/.package-lock.json ## the console with its sources reloaded, on the server at HOLDFAST_ADMIN (http://127.0.0.1:9090)
	cd console && npm run --silent dev

console/node_modules/.package-lock.json: console/package-lock.json
	cd console && npm ci --silent --no-audit --no-fund && touch node_modules/.package-lock.json

cover: ## test coverage of internal/, by package and in all
	go test -timeout $(TIMEOUT) -coverpkg ./internal/... -coverprofile coverage.out $(PACKAGES)
	go tool cover -func coverage.out | tail -1

clean: ## remove what was built; the database in ./.holdfast stays
	rm -rf bin coverage.out dist internal/admin/console/site/site.zip integration/faults/{chaos.md,soak.*,soak-*} interop/.cache sdk/python/.cache sdk/typescript/{dist,build,node_modules} console/node_modules

kubernetes: bin/helm ## lint, render and check the Helm chart against the types of Kubernetes, and that deploy/kubernetes is up to date
	cd tools/kubernetes && go test -count=1 ./...

kubernetes-update: bin/helm ## write deploy/kubernetes again, from the chart
	cd tools/kubernetes && go test -count=1 -run '^TestManifests$$' . -update

release-check: bin/goreleaser bin/actionlint ## check the configuration of releases and the workflows
	REGISTRY=registry.example.com bin/goreleaser check
	bin/actionlint

# The tools' versions are in tools/go.mod. Without cgo they build on a machine that has only Go; sqlc then runs its
# parser as WebAssembly.
bin/sqlc: tools/go.mod tools/go.sum
	cd tools && CGO_ENABLED=0 go build -o ../$@ github.com/sqlc-dev/sqlc/cmd/sqlc

bin/golangci-lint: tools/go.mod tools/go.sum
	cd tools && CGO_ENABLED=0 go build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

bin/gotestsum: tools/go.mod tools/go.sum
	cd tools && CGO_ENABLED=0 go build -o ../$@ gotest.tools/gotestsum

bin/govulncheck: tools/go.mod tools/go.sum
	cd tools && CGO_ENABLED=0 go build -o ../$@ golang.org/x/vuln/cmd/govulncheck

bin/benchstat: tools/go.mod tools/go.sum
	cd tools && CGO_ENABLED=0 go build -o ../$@ golang.org/x/perf/cmd/benchstat

# It reads Go with tree-sitter, which is C.
bin/vale: tools/go.mod tools/go.sum
	cd tools && CGO_ENABLED=1 go build -o ../$@ github.com/vale-cli/vale/v3/cmd/vale

# Programs for deployments and releases have modules of their own: their dependencies are many.
bin/helm: tools/kubernetes/go.mod tools/kubernetes/go.sum
	cd tools/kubernetes && CGO_ENABLED=0 go build -o ../../$@ helm.sh/helm/v4/cmd/helm

bin/actionlint: tools/actionlint/go.mod tools/actionlint/go.sum
	cd tools/actionlint && CGO_ENABLED=0 go build -o ../../$@ github.com/rhysd/actionlint/cmd/actionlint

bin/goreleaser: tools/release/go.mod tools/release/go.sum
	cd tools/release && CGO_ENABLED=0 go build -o ../../$@ github.com/goreleaser/goreleaser/v2
