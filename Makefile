SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

GO        ?= go
FUZZTIME  ?= 5s# of each fuzz test
RACE      ?=# -race: the tests of k8s under the race detector
TIME      ?= 2m# of chaos, of each way of chaos-lockstep, or of the soak
TRANSPORT   ?=# of chaos: this one only
HOSTILE   ?=# of chaos: only rounds with a hostile node, which does this; any: by seed
RUNS      ?= runs# whose event files tensorboard shows
SEED      ?= -1# of one round of chaos; -1: many, for TIME
BENCH     ?=# which benchmarks; none: the floors of the policies, as a table
BENCHTIME ?= 1s
PRESET    ?=# of reproduce: names of presets, or their beginnings; none: all that are not long
SEEDS     ?= 5# of reproduce
RESULTS   ?=# of reproduce: further flags, such as -at-once 1; bin/results -help has them
PACKAGE   ?=# of which mutate tries the tests
MUTATE    ?= -n 30 -for 10m# how many mutations, for how long; -seed 2 draws others
SYSTEMS   := darwin windows# where it must build, besides here

CUSTOM = examples/custom-algorithm# an example that is a module of its own

LINT_VERSION := v2.15.0
LINT = .tools/golangci-lint-$(LINT_VERSION)

ONNXRUNTIME = .tools/onnxruntime# where make onnxruntime has npm put its packages

VULN_VERSION := v1.9.0
VULN = .tools/govulncheck-$(VULN_VERSION)

# The relevant lines of go test -v: failures, skips, output of tests, and the
# last line of each package. With CI set, a skip is a failure.
FILTER = awk '/^=== / || /^ *--- PASS/ || /no test files/ {next} {print; fflush()} \
	/^ *--- SKIP/ {skipped++} \
	END {if (skipped && ENVIRON["CI"] != "") {print "FAIL: " skipped " tests were skipped: on CI everything runs"; exit 1}}'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/ditask, one static file
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=auto -ldflags '-s -w' -o bin/ditask ./ditask
	@bin/ditask version

.PHONY: deps
deps: ## install the servers that tests run, on Debian
	@.ci/deps

.PHONY: check
check: deps fmt vet lint generated vulnerabilities cross race test k8s fuzz smoke chaos ## everything that CI runs, including test; takes about 20 minutes
	@echo "check: ok"

.PHONY: fmt
fmt: ## list the files that gofmt would change
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "gofmt -w would change:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## go vet, also of the long score runs, which no other target compiles
	$(GO) vet ./...
	$(GO) vet -tags scores ./policies/...
	$(GO) vet -tags onnxruntime ./policies/export
	cd $(CUSTOM) && $(GO) vet ./...

.PHONY: lint
lint: $(LINT) ## golangci-lint, at the version pinned here
	$(LINT) run --allow-parallel-runners ./...
	cd $(CUSTOM) && $(CURDIR)/$(LINT) run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...

$(LINT):
	@mkdir -p .tools/install
	GOBIN=$(CURDIR)/.tools/install $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@mv .tools/install/golangci-lint $@

KERNELS = policies/nn/kernels

.PHONY: generated
generated: $(LINT) ## compare the assembly of policies/nn/kernels with the output of its generator; vet and lint the generator
	@sums() { cat $(KERNELS)/{kernels_amd64.s,stubs_amd64.go,dispatch_amd64.go,dispatch_other.go} | sha256sum; }; before=$$(sums); \
		$(GO) generate ./$(KERNELS); [ "$$before" = "$$(sums)" ] || { echo "go generate has changed files of $(KERNELS): commit them"; exit 1; }
	cd $(KERNELS)/internal/avo && $(GO) vet . && $(CURDIR)/$(LINT) run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...

.PHONY: vulnerabilities
vulnerabilities: $(VULN) ## look for known vulnerabilities that the code can reach, if their database is reachable
	@GOVULNCHECK=$(CURDIR)/$(VULN) .ci/vulnerabilities . k8s

$(VULN):
	@mkdir -p .tools/install
	GOBIN=$(CURDIR)/.tools/install $(GO) install golang.org/x/vuln/cmd/govulncheck@$(VULN_VERSION)
	@mv .tools/install/govulncheck $@

.PHONY: cross
cross: ## build for the other systems
	$(GO) build ./...
	@for os in $(SYSTEMS); do echo "GOOS=$$os $(GO) build ./..."; GOOS=$$os CGO_ENABLED=0 $(GO) build ./...; done

.PHONY: race
race: ## the tests under the race detector, without long learning tests
	$(GO) test -race -short -shuffle=on ./...

.PHONY: test
test: deps ## all tests, without the race detector and those of k8s on an API server
	$(GO) test -v -count=1 -shuffle=on ./... 2>&1 | $(FILTER)
	cd $(CUSTOM) && $(GO) test -v -count=1 -shuffle=on ./... 2>&1 | $(FILTER)

.PHONY: onnxruntime
onnxruntime: ## exported models in the official runtime: that of PYTHON, if it has onnx, onnxruntime and numpy, else those of npm, for Node
	@if $(or $(PYTHON),python3) -c 'import numpy, onnx, onnxruntime' 2>/dev/null; then run='^TestOfficialRuntime$$'; else \
		run='^TestOfficialRuntimeInNode$$'; mkdir -p $(ONNXRUNTIME) && cp policies/export/testdata/onnxruntime/package*.json $(ONNXRUNTIME) && \
		npm ci --prefix $(ONNXRUNTIME) --ignore-scripts --no-audit --no-fund; fi && \
	NODE_PATH=$(abspath $(ONNXRUNTIME))/node_modules $(GO) test -tags onnxruntime -count=1 -v ./policies/export -run "$$run"

.PHONY: onnx-checker
onnx-checker: ## exported models by the checker and the shape inference of the package onnx of PYTHON: Debian's python3-onnx will do
	$(GO) test -tags onnxruntime -count=1 -v ./policies/export -run '^TestOfficialChecker$$'

.PHONY: gymnasium
gymnasium: ## compare the environments of an installed Gymnasium with those of package envs
	$(GO) test -count=1 -v -run '^Test(Gymnasium|Numpy)$$' ./envs/gym -args -gymnasium

.PHONY: fuzz
fuzz: ## each fuzz test for FUZZTIME
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file target; do \
		out=$$($(GO) test -run '^$$' -fuzz "^$${target#func }\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$(dirname "$$file")" 2>&1) || { \
			if grep -q 'context deadline exceeded' <<<"$$out" && ! grep -q 'Failing input' <<<"$$out"; \
			then out="ok $$target: nothing found; the engine was busy with an input when its time was up"; \
			else echo "$$out"; exit 1; fi; }; \
		tail -n 2 <<<"$$out"; \
	done

.PHONY: smoke
smoke: ## run the first command of README.md
	@command=$$(sed -n '/^go run /{p;q;}' README.md); echo "$$command"; timeout 300 $$command

.PHONY: chaos
chaos: ## inject faults into jobs of real processes for TIME, or replay the round of SEED
	@$(GO) run ./internal/faultlab/clock .tools/clock
	$(GO) test -overlay .tools/clock/overlay.json -tags clockjump -count=1 -timeout 0 -v ./internal/faultlab/chaos -run TestChaos -args -chaos.time=$(TIME) -chaos.seed=$(SEED) -chaos.transport='$(TRANSPORT)' -chaos.hostile='$(HOSTILE)' 2>&1 | awk '!/^ *(=== |--- PASS)/ {print; fflush()}'

.PHONY: chaos-hostile
chaos-hostile: ## add hostile nodes to jobs of real processes for TIME; HOSTILE=credit selects one kind
	@$(MAKE) --no-print-directory chaos HOSTILE='$(or $(HOSTILE),any)'

.PHONY: chaos-lockstep
chaos-lockstep: ## kill and resume jobs that train in lockstep, in each way for TIME
	$(GO) test -count=1 -timeout 0 -v -run TestProcesses ./middleware/rl -args -lockstep.time=$(TIME) 2>&1 | awk '!/^ *(=== |--- PASS)/ {print; fflush()}'

.PHONY: soak
soak: ## run a launcher and four busy nodes for TIME: their resources must not grow
	$(GO) test -count=1 -timeout 0 -v -run TestSoak ./internal/faultlab/chaos -args -soak.time=$(TIME) 2>&1 | awk '!/^ *(=== |--- PASS)/ {print; fflush()}'

CONTROL_PLANE = $(CURDIR)/.tools/controlplane-$(shell cat k8s/internal/controlplane/{go.sum,main.go} | sha256sum | cut -c 1-12)
KUBE_VERSION  = $(shell awk '$$1 == "k8s.io/kubernetes" {print $$2}' k8s/internal/controlplane/go.mod)

.PHONY: k8s
k8s: control-plane $(LINT) ## check the module k8s: generated files, vet, lint, tests on a real API server
	@sums() { cat k8s/api/v1alpha1/zz_generated.deepcopy.go k8s/config/crd/*.yaml k8s/chart/crds/*.yaml | sha256sum; }; before=$$(sums); \
		(cd k8s && $(GO) generate ./...); [ "$$before" = "$$(sums)" ] || { echo "go generate has changed files of k8s: commit them"; exit 1; }
	cd k8s && $(GO) vet -tags e2e ./... && $(CURDIR)/$(LINT) run --allow-parallel-runners --build-tags e2e --config $(CURDIR)/.golangci.yml ./...
	cd k8s && KUBEBUILDER_ASSETS=$(CONTROL_PLANE) $(GO) test $(RACE) -v -count=1 -shuffle=on ./... 2>&1 | $(FILTER)

.PHONY: control-plane
control-plane: $(CONTROL_PLANE)/kubectl ## build etcd, kube-apiserver and others for the tests of k8s; takes minutes, once
	@echo "export KUBEBUILDER_ASSETS=$(CONTROL_PLANE)"

KUBE_FLAGS = -X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION) -X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBE_VERSION)))

COREDNS_VERSION := v1.14.7
COREDNS = .tools/coredns-$(COREDNS_VERSION)

.PHONY: e2e-kubernetes
e2e-kubernetes: control-plane $(CONTROL_PLANE)/node $(COREDNS) ## test the operator and jobs on a Kubernetes with three kubelets; needs root
	@.ci/deps containerd:containerd runc:runc /usr/lib/cni/bridge:containernetworking-plugins ip:iproute2 iptables:iptables nsenter:util-linux
	@# The test builds its images where there is no network.
	@$(GO) list -deps ./ditask ./examples/dqn ./internal/faultlab/steady >/dev/null
	@cd k8s && $(GO) list -deps ./operator ./e2e/pause >/dev/null && cd internal/controllers && $(GO) list -deps sigs.k8s.io/jobset sigs.k8s.io/lws/cmd >/dev/null
	cd k8s && $(GO) test -tags e2e -c -o $(CURDIR)/.tools/e2e-kubernetes ./e2e
	@cd k8s/e2e && KUBEBUILDER_ASSETS=$(CONTROL_PLANE) COREDNS=$(CURDIR)/$(COREDNS) $(CURDIR)/.tools/e2e-kubernetes -test.v -test.timeout 1h

$(CONTROL_PLANE)/node: k8s/internal/controlplane/node/main.go
	@mkdir -p $(@D)
	cd k8s/internal/controlplane && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w $(KUBE_FLAGS)' -o $@ ./node

$(COREDNS):
	@mkdir -p .tools/install
	CGO_ENABLED=0 GOBIN=$(CURDIR)/.tools/install $(GO) install -ldflags '-s -w' github.com/coredns/coredns@$(COREDNS_VERSION)
	@mv .tools/install/coredns $@

$(CONTROL_PLANE)/kubectl:
	@mkdir -p $(@D)
	cd k8s/internal/controlplane && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w $(KUBE_FLAGS)' -o $(@D)/controlplane .
	@for program in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do ln -sf controlplane $(@D)/$$program; done

.PHONY: bench
bench: ## measure the policies against their floors; or run BENCH, each for BENCHTIME
ifeq ($(BENCH),)
	$(GO) test -count=1 -timeout 0 -v -run '^TestFloors$$' ./internal/bench -args -floors
else
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem ./...
endif

.PHONY: reproduce
reproduce: bin/results ## train with the presets, or PRESET, with SEEDS, and write docs/results.md; takes an hour on two cores
	bin/results -seeds $(SEEDS) $(RESULTS) $(PRESET)

.PHONY: reproduce-check
reproduce-check: bin/results ## train with the presets, or PRESET, and compare with docs/results.md
	bin/results -check -seeds $(SEEDS) $(RESULTS) $(PRESET)

.PHONY: bin/results
bin/results:
	@CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=auto -o $@ ./internal/results

.PHONY: tensorboard
tensorboard: ## show the event files below RUNS in a browser; needs TensorBoard
	@command -v tensorboard >/dev/null || { echo "tensorboard: not found: python3 -m pip install tensorboard"; exit 2; }
	tensorboard --logdir '$(RUNS)'

.PHONY: mutate
mutate: ## change the code of PACKAGE at random, and print the changes that its tests do not notice
	@[ -n "$(PACKAGE)" ] || { echo "mutate: no package: make mutate PACKAGE=./task"; exit 2; }
	@nice $(GO) run ./internal/mutate $(MUTATE) $(PACKAGE)

.PHONY: cover
cover: ## coverage of all tests together, in coverage.out
	$(GO) test -short -coverpkg=./... -coverprofile=coverage.out ./...
	@$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: clean
clean: ## remove the files that make has built
	rm -rf bin .tools coverage.out
