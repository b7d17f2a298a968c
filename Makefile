# make test is all a change needs; see CONTRIBUTING.md for the rest.

GO          ?= go
STATICCHECK  = honnef.co/go/tools/cmd/staticcheck@v0.8.2
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null)
FUZZTIME    ?= 30s
BENCH       ?= .
SEEDS       ?= 20000
TESTFLAGS   ?=

.PHONY: bench-spool bench-backlog bench-hosts bench-files bench-files-polling bench-100k-files test test-long test-seeds test-long-reports test-long-faults test-long-cases test-long-older lint kafka-note build bench fuzz demo clean

# -count=1: the tests of the binary build it themselves, which the cache of results does not see.
test: lint kafka-note
	$(GO) test $(TESTFLAGS) -race -count=1 -timeout 10m $$($(GO) list ./... | grep -v '/internal/e2e$$')
	$(GO) test $(TESTFLAGS) -count=1 -timeout 10m ./internal/e2e # the agent is another process there, and wants the processors to itself
	$(GO) test $(TESTFLAGS) -count=1 -run Alloc ./tail ./pipeline ./pipeline/record ./spool ./sink/kafka ./internal/spsc # what the race detector would falsify

# The agent on real brokers that are killed, frozen, cut off, emptied and elected uncleanly, each test as a user that may read and as one that
# may only write. About 12 and 35 minutes, and 20 of cases that are about time;
# SHIPPER_KAFKA_VERSION=3.9.1 runs them on another Kafka, test-long-older the most telling of them on that one.
LONG = $(GO) test -tags long -count=1 -v
test-long: test-long-reports test-long-faults test-long-cases

test-long-reports: kafka-note
	$(LONG) -timeout 25m -run 'Test(S[123]|Recut)' ./internal/e2e

test-long-faults: kafka-note
	$(LONG) -timeout 55m -run 'Test(C1..[A-Z][a-z]+.*|CleanRestart|Unclean|Unseen|Backlog|ClusterWiped|Kill9TwoHundred|NoLane)' -skip 'InFull$$' ./internal/e2e

test-long-cases: kafka-note
	$(LONG) -timeout 35m -run 'InFull$$|PodsRotated$$|LongMessages$$' ./internal/e2e

test-long-older: kafka-note
	SHIPPER_KAFKA_VERSION=3.9.1 $(LONG) -timeout 40m -run 'Test(S[123]|RecutS1|Unclean|Unseen|ClusterWiped)' ./internal/e2e

# The random lives of the spool over many seeds: about 20 to 40 ms each on a quiet machine.
test-seeds:
	SPOOL_SEEDS=$(SEEDS) $(GO) test -count=1 -timeout 60m -v -run 'Test(RotWalk|CrashWalk)$$' ./spool

# gofmt, go vet, staticcheck. The rules of the house are tidy_test.go, part of the tests.
lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted" >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags long ./internal/e2e
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(STATICCHECK) -tags long ./internal/e2e

# Tests against real Kafka start brokers from Apache's Maven artefacts; without Java or Maven they are skipped, which is said here
# since `go test` does not. SHIPPER_REQUIRE_KAFKA=1 makes them fail instead.
kafka-note:
	@for tool in java mvn; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	if [ -n "$$missing" ] && [ "$$SHIPPER_REQUIRE_KAFKA" = 1 ]; then echo "real Kafka is required but missing here:$$missing" >&2; exit 1; fi; \
	if [ -n "$$missing" ]; then echo "note: tests against real Kafka are skipped, missing here:$$missing"; fi

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/shipper ./cmd/shipper

# Figures of the packages; those of the whole agent are made as benchmarks/README.md says.
bench:
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

# Many files: idling, first lines, fairness; under two minutes each, on a quiet machine.
bench-files:
	$(GO) run ./benchmarks/files -only inotify -idle 15s -grow 5s -results benchmarks/results

bench-files-polling:
	$(GO) run ./benchmarks/files -only polling -idle 15s -grow 5s -results benchmarks/results

bench-100k-files:
	$(GO) run ./benchmarks/files -files 100000 -only inotify -idle 15s -grow 5s -results benchmarks/results

# How long a start takes by size and what a stuck lane keeps, warm and cold: 10 GiB on disk, some minutes.
bench-spool:
	$(GO) run ./benchmarks/spool -results benchmarks/results

# How fast a full spool drains, from a warm and a cold page cache.
bench-backlog:
	$(GO) run ./benchmarks/backlog -batches 2000 -lines 4500 -rtt 0s -results benchmarks/results
	$(GO) run ./benchmarks/backlog -batches 2000 -lines 4500 -rtt 0s -cold -results benchmarks/results

# What ordinary hosts cost, footprint at rest: needs the right to make name spaces.
bench-hosts:
	$(GO) run ./benchmarks/hosts -results benchmarks/results

# Every fuzz target of every package for FUZZTIME each.
fuzz:
	@set -e; for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "== $$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

demo:
	$(GO) run ./cmd/shipper demo

clean:
	rm -rf bin
