SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

GO        ?= go
FUZZTIME  ?= 5s# of each fuzz test
TIME      ?= 2m# of chaos
SEED      ?= -1# of one round of chaos; -1: many, for TIME
BENCH     ?= .# which benchmarks
BENCHTIME ?= 1s
SYSTEMS   := darwin windows# where it must build, besides here

LINT_VERSION := v2.15.0
LINT = .tools/golangci-lint-$(LINT_VERSION)

# The lines of go test -v that say something: failures, skips, what tests
# print, and the closing line of each package. With CI set, a skip is a failure.
FILTER = awk '/^=== / || /^ *--- PASS/ || /no test files/ {next} {print; fflush()} \
	/^ *--- SKIP/ {skipped++} \
	END {if (skipped && ENVIRON["CI"] != "") {print "FAIL: " skipped " tests were skipped: on CI everything runs"; exit 1}}'

.PHONY: help
help: ## list what make can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/ditask, one static file
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=auto -ldflags '-s -w' -o bin/ditask ./ditask
	@bin/ditask version

.PHONY: deps
deps: ## install the servers that tests run, on Debian
	@.ci/deps

.PHONY: check
check: deps fmt vet lint cross race test fuzz smoke chaos ## all that CI runs; takes some minutes
	@echo "check: ok"

.PHONY: fmt
fmt: ## say which files gofmt would change
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "gofmt -w would change:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...

.PHONY: lint
lint: $(LINT) ## golangci-lint, at the version that is pinned here
	$(LINT) run ./...

$(LINT):
	@mkdir -p .tools/install
	GOBIN=$(CURDIR)/.tools/install $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@mv .tools/install/golangci-lint $@

.PHONY: cross
cross: ## build for the other systems
	$(GO) build ./...
	@for os in $(SYSTEMS); do echo "GOOS=$$os $(GO) build ./..."; GOOS=$$os CGO_ENABLED=0 $(GO) build ./...; done

.PHONY: race
race: ## the tests under the race detector, without those that learn for long
	$(GO) test -race -short -shuffle=on ./...

.PHONY: test
test: ## all tests, without the race detector
	$(GO) test -v -count=1 -shuffle=on ./... 2>&1 | $(FILTER)

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
smoke: ## the first command of README.md, word for word
	@command=$$(sed -n '/^go run /{p;q;}' README.md); echo "$$command"; timeout 300 $$command

.PHONY: chaos
chaos: ## harm jobs of real processes for TIME, or replay the round of SEED
	$(GO) test -count=1 -timeout 0 -v ./internal/faultlab/chaos -args -chaos.time=$(TIME) -chaos.seed=$(SEED) 2>&1 | awk '!/^ *(=== |--- PASS)/ {print; fflush()}'

.PHONY: bench
bench: ## BENCH, each for BENCHTIME
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem ./...

.PHONY: cover
cover: ## coverage of all tests together, in coverage.out
	$(GO) test -short -coverpkg=./... -coverprofile=coverage.out ./...
	@$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: clean
clean: ## remove what make has built
	rm -rf bin .tools coverage.out
