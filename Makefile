# The two commands: `make run` and `make test`. Both work on a machine with Go,
# make and root (or sudo); what else they need they install and name.

SHELL := /bin/sh
DATA_DIR ?= .data
export DATA_DIR
# Which server: redis or valkey.
SERVER ?= redis
export SERVER

# Keeps this folder's path out of what is compiled, so that all clones share Go's build cache.
export GOFLAGS := -trimpath $(GOFLAGS)

# Pinned: a tool's release must not change the result.
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# v1.9.0 needs a version of golang.org/x/telemetry that the Go proxy does not have.
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
SHIPPED := ./gateway ./worker ./reporting ./loadtest/receiver/receive ./internal/stack/run ./internal/devclickhouse
FUZZ_TIME ?= 15s

INSTALL := sh internal/stack/deps.sh
INSTALL_CLICKHOUSE := go run ./internal/devclickhouse install

# GOGC: the compiler collects less often, which saves a fresh machine seconds.
define BUILD
mkdir -p "$(DATA_DIR)/bin"
echo "building into $(DATA_DIR)/bin (the first make run takes about two minutes)"
GOGC=200 CGO_ENABLED=0 go build -o "$(DATA_DIR)/bin/" $(SHIPPED)
endef

.DEFAULT_GOAL := help
.PHONY: help run stop demo report erase backup restore clean env deps test test-long lint fuzz rolling compose-test bench faults loadtest

help: ## this list
	@awk -F ':.*## ' '/^## / { print "\n" substr($$0, 4) } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile
	@printf '\nSERVER=valkey takes Valkey instead of Redis. bench, demo, faults and loadtest explain themselves: ARGS=-help\n'

## Running it

run: ## start everything and print how to use it; Ctrl-C or make stop stops it
	@$(INSTALL) $(SERVER)-server
	@$(BUILD)
	@[ -n "$(CLICKHOUSE_URL)" ] || "$(DATA_DIR)/bin/devclickhouse" install
	@exec "$(DATA_DIR)/bin/run" -die-with-parent -bin "$(DATA_DIR)/bin"

stop: ## stop the run of DATA_DIR, wherever it was started
	@if [ -x "$(DATA_DIR)/bin/run" ]; then "$(DATA_DIR)/bin/run" -stop; else echo "nothing runs on $(DATA_DIR)"; fi

demo: ## play a vendor's day with its reports, on a system of its own (PICTURES=yes: take PANEL.md's)
	@$(INSTALL) $(SERVER)-server $(if $(filter yes,$(PICTURES)),chromium)
	@$(INSTALL_CLICKHOUSE)
	@go run ./loadtest/demo $(if $(filter yes,$(PICTURES)),-pictures reporting/screenshots) $(ARGS)

report: ## a command of reporting (ARGS='report expected-collections', ARGS='reconcile --day 2026-11-21')
	@. "$(DATA_DIR)/demo.env"; \
	REDIS_URL="$$RUN_REDIS_URL" REDIS_CA_FILE="$$REDIS_CA_FILE" CLICKHOUSE_URL="$$RUN_CLICKHOUSE_URL" ENVIRONMENT=sandbox BOOKS_KEYS_FILE="$(DATA_DIR)/keys/books-keys" PANEL_URL="$$PANEL_URL" \
	"$(DATA_DIR)/bin/reporting" $(ARGS)

# ERASURES names the list of erasures, unless it is the one in DATA_DIR/backups.
erase: ## erase a recipient, from restored backups too (ARGS='--phone 05321234567', ARGS='--order ID')
	@mkdir -p -m 700 "$(DATA_DIR)/backups"
	@. "$(DATA_DIR)/demo.env"; \
	REDIS_URL="$$BACKUP_REDIS_URL" REDIS_CA_FILE="$$REDIS_CA_FILE" ENVIRONMENT=sandbox "$(DATA_DIR)/bin/reporting" erase \
		--record "$(or $(ERASURES),$(DATA_DIR)/backups/erasures)" $(ARGS)

backup: ## copy the running system, keys included, to TO (unless given, DATA_DIR/backups/<time>)
	@. "$(DATA_DIR)/demo.env"; \
	REDIS_URL="$$BACKUP_REDIS_URL" REDIS_CA_FILE="$$REDIS_CA_FILE" CLICKHOUSE_URL="$$RUN_CLICKHOUSE_URL" ENVIRONMENT=sandbox "$(DATA_DIR)/bin/reporting" backup \
		--to "$(or $(TO),$(DATA_DIR)/backups/$$(date -u +%Y%m%dT%H%M%SZ))" --include "$(DATA_DIR)/keys" --include "$(DATA_DIR)/demo.json"

# REPLACE=yes moves aside what is in DATA_DIR; IDENTITY is the file with age's private key; ERASURES
# the list of erasures, unless it lies beside FROM. A drill tries the newest backup of FROM, or of
# DATA_DIR/backups, on a separate system, and compares it with reconcile in the end.
restore: ## put the backup FROM into DATA_DIR, which no run may use (DRILL=yes: only try it)
	@[ -n "$(FROM)" ] || [ "$(DRILL)" = yes ] || { echo "restore: FROM=folder names the backup" >&2; exit 1; }
	@$(INSTALL) $(SERVER)-server
	@$(BUILD)
	@if [ -z "$(CLICKHOUSE_URL)" ] || [ "$(DRILL)" = yes ]; then "$(DATA_DIR)/bin/devclickhouse" install; fi
	@"$(DATA_DIR)/bin/run" -bin "$(DATA_DIR)/bin" $(if $(filter yes,$(DRILL)),-drill) -restore "$(or $(FROM),$(DATA_DIR)/backups)" \
		-age-identity "$(IDENTITY)" -erasures "$(ERASURES)" $(if $(filter yes,$(REPLACE)),-replace)

clean: ## remove everything under DATA_DIR but backups and what a restore moved aside
	@if [ -e "$(DATA_DIR)/lock" ] && command -v flock >/dev/null && ! flock -n "$(DATA_DIR)/lock" true; then \
		echo "clean: $(DATA_DIR) is in use by a run" >&2; exit 1; fi
	@cd "$(DATA_DIR)" 2>/dev/null && rm -rf redis clickhouse keys logs nightly bin loadtest rules simulation bench*.json demo.json demo.json.partial demo.env restore-unfinished lock || true
	@rmdir "$(DATA_DIR)" 2>/dev/null || true

# CERTIFICATE=yes alone adds one to the .env that is there.
env: ## write keys for docker-compose.yml to .env, once (ENVIRONMENT=sandbox or production; CERTIFICATE=yes)
	@sh "$(dir $(lastword $(MAKEFILE_LIST)))configs/env.sh" "$(ENVIRONMENT)" "$(CERTIFICATE)"

## Changing it

deps: ## install what is missing from the system's packages, and the ClickHouse library from npm
	@$(INSTALL) $(SERVER)-server valkey-server gcc curl haproxy openssh-server libreoffice chromium
	@$(INSTALL_CLICKHOUSE)

# Vetting compiles most of what a fresh machine has to; GOGC as above.
test: ## every rule once and the whole system once; 15 minutes on two cores, 20 the first time
	@$(INSTALL) $(SERVER)-server gcc
	@unformatted=$$(gofmt -l gateway internal loadtest reporting worker); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:" >&2; echo "$$unformatted" >&2; exit 1; fi
	GOGC=400 CGO_ENABLED=0 go vet -tags long,compose,clients ./...
	@CGO_ENABLED=0 go vet ./internal/testenv/testserver ./reporting/auth # which have files without the tag long
	@CGO_ENABLED=0 go run ./internal/testenv/run $(ARGS)

test-long: deps ## all of it and what takes real time: kills, clusters, a browser, LibreOffice; 40 minutes
	@CGO_ENABLED=0 go run ./internal/testenv/run -long $(ARGS)

# The alert rules are checked with promtool and amtool, Debian's, which are fetched into the cache once,
# and with one delivery of a real Prometheus and Alertmanager.
# govulncheck fails where it cannot read its database (VULNDB=file:///... names a copy).
lint: ## golangci-lint; CHECK=alerts: rules and who hears of them; CHECK=vulnerabilities
	@case "$(CHECK)" in \
	"") go run $(GOLANGCI_LINT) run ./... ;; \
	alerts) $(INSTALL) haproxy && (cd configs/prometheus && sh tool.sh promtool check rules alerts.yml && sh tool.sh promtool check config prometheus.yml && \
		sh tool.sh promtool test rules alerts_test.yml && sh tool.sh amtool check-config alertmanager.yml) && \
		CGO_ENABLED=0 go test -count 1 -tags long -run '^TestOnCall_' -v ./loadtest/systemtest ;; \
	vulnerabilities) go run $(GOVULNCHECK) $(if $(VULNDB),-db "$(VULNDB)") $(SHIPPED) || { \
		echo "lint: what was found stands above, or the database could not be read and nothing was checked" >&2; exit 1; } ;; \
	*) echo "lint: CHECK is alerts, vulnerabilities or empty, not $(CHECK)" >&2; exit 1 ;; esac

fuzz: ## run every fuzz target for FUZZ_TIME each (15s)
	@for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' "$$package" | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) "$$package" || exit 1; \
		done; \
	done

rolling: ## replace the programs of the commit BASE by these, and some back, under load: nothing is lost
	@$(INSTALL) $(SERVER)-server gcc
	@ROLLING_BASE=$(or $(BASE),HEAD~1) CGO_ENABLED=0 go run ./internal/testenv/run -long -run '^TestRolling_UpgradeAndWayBackLoseNothing$$' ./loadtest/systemtest

# Not by go test: signals must reach what removes the containers. In a network of its own,
# whose ports are free.
compose-test: ## build and run docker-compose.yml under a Docker daemon of its own; root, 15 to 30 minutes
	@$(INSTALL) docker mmdebstrap openssl valkey-server
	@mkdir -p "$(DATA_DIR)/bin"
	@CGO_ENABLED=0 go test -tags compose -c -o "$(DATA_DIR)/bin/compose-test" ./loadtest/composetest
	@bin=$$(cd "$(DATA_DIR)/bin" && pwd) && cd loadtest/composetest && exec unshare --net "$$bin/compose-test" -test.timeout 60m

## Measuring it

bench: ## ratios to the limit of Redis, or SUITE=webhooks, receivers, reporting, growth; 8 to 30 minutes
	@$(INSTALL) $(SERVER)-server
	@[ "$(SUITE)" != reporting ] || $(INSTALL_CLICKHOUSE)
	@go run ./loadtest/bench $(if $(SUITE),-suite $(SUITE)) $(ARGS)

# SEED=n repeats a run. reporting: 50,000 orders with exporter and ClickHouse killed again and again, whose reports must be
# exact, and months that are closed and corrected while all of it is killed after each step.
faults: ## break the real system, 10 minutes; SUITE=mutants, overload, reporting, rules, simulation
	@$(INSTALL) $(SERVER)-server gcc
	@$(INSTALL_CLICKHOUSE)
	@case "$(SUITE)" in \
	"") go run ./loadtest/faults -duration 10m $(if $(SEED),-seed $(SEED)) $(ARGS) ;; \
	mutants) go run ./loadtest/faults mutants $(ARGS) ;; \
	overload) go run ./loadtest/faults -overload $(ARGS) ;; \
	reporting) FAULTS=long go test -tags long -count=1 -timeout 30m -v -run '^TestExactness' ./reporting/reports && \
		go test -tags long -count=1 -timeout 30m -v -run '^Test(Crash|Books)_' ./reporting/closing ;; \
	rules) go run ./internal/rules/prove -folder "$(DATA_DIR)/rules" $(ARGS) ;; \
	simulation) ENVIRONMENT=sandbox go run ./loadtest/simulation $(if $(SEED),-seed $(SEED),-seeds $(or $(SEEDS),1000)) $(ARGS) ;; \
	*) echo "faults: SUITE is mutants, overload, reporting, rules, simulation or empty, not $(SUITE)" >&2; exit 1 ;; esac

loadtest: ## play the k6 scripts, here or against BASE_URL (ACCOUNTS=file); SUITE=clients: other languages
	@[ -n "$(BASE_URL)" ] || $(INSTALL) $(SERVER)-server
	@case "$(SUITE)" in \
	"") go run ./loadtest/k6 $(ARGS) ;; \
	clients) for name in curl haproxy php java python-requests; do $(INSTALL) $$name || echo "loadtest: without $$name"; done; \
		go run ./loadtest/k6 -install && CGO_ENABLED=0 go test -tags clients -count 1 -v ./loadtest/clients ;; \
	*) echo "loadtest: SUITE is clients or empty, not $(SUITE)" >&2; exit 1 ;; esac
