# The two commands: `make run` and `make test`. Both work on a machine with Go,
# make and root (or sudo); what else they need they install and name.

SHELL := /bin/sh
DATA_DIR ?= .data
export DATA_DIR
# Which server: redis or valkey.
SERVER ?= redis
export SERVER

# Pinned: a tool's release must not change the result.
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# v1.9.0 needs a version of golang.org/x/telemetry that the Go proxy does not have.
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
SHIPPED := ./gateway ./worker ./reporting ./loadtest/receiver/receive ./internal/stack/run ./internal/devclickhouse
FUZZ_TIME ?= 15s

.DEFAULT_GOAL := help
.PHONY: help deps run stop test test-long flaky demo screenshots report erase backup restore restore-drill openapi alerts check-config faults faults-minute mutants rules overload simulate faults-reporting lint vulncheck licences build fuzz bench bench-growth bench-scale bench-replica bench-webhooks bench-reporting loadtest load-accounts check-clients compose-test rolling env certificate clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

deps: ## install what is missing: redis-server, valkey-server, gcc, curl, haproxy, sshd, LibreOffice, Chromium from the system's packages, the ClickHouse library from npm
	@sh internal/stack/deps.sh $(SERVER)-server valkey-server gcc curl haproxy openssh-server libreoffice chromium
	@go run ./internal/devclickhouse install

run: ## start everything and print how to use it; Ctrl-C or make stop stops it
	@sh internal/stack/deps.sh $(SERVER)-server
	@$(MAKE) -s build
	@[ -n "$(CLICKHOUSE_URL)" ] || "$(DATA_DIR)/bin/devclickhouse" install
	@exec "$(DATA_DIR)/bin/run" -die-with-parent -bin "$(DATA_DIR)/bin"

stop: ## stop the run of DATA_DIR, wherever it was started; says so when there is none
	@if [ -x "$(DATA_DIR)/bin/run" ]; then "$(DATA_DIR)/bin/run" -stop; else echo "nothing runs on $(DATA_DIR)"; fi

demo: ## play a vendor's day against a system of its own, with its reports; balances or fails (ARGS='-orders 300')
	@sh internal/stack/deps.sh $(SERVER)-server
	@go run ./internal/devclickhouse install
	@go run ./loadtest/demo $(ARGS)

screenshots: ## take PANEL.md's pictures of the panel from a day that is played for them (ARGS=-help)
	@sh internal/stack/deps.sh $(SERVER)-server chromium
	@go run ./internal/devclickhouse install
	@go run ./loadtest/screenshots $(ARGS)

report: ## a command of reporting against the running system (ARGS='report expected-collections', ARGS='reconcile --day 2026-11-21')
	@. "$(DATA_DIR)/demo.env"; \
	REDIS_URL="$$RUN_REDIS_URL" REDIS_CA_FILE="$$REDIS_CA_FILE" CLICKHOUSE_URL="$$RUN_CLICKHOUSE_URL" ENVIRONMENT=sandbox BOOKS_KEYS_FILE="$(DATA_DIR)/keys/books-keys" PANEL_URL="$$PANEL_URL" \
	"$(DATA_DIR)/bin/reporting" $(ARGS)

erase: ## erase the data of an order's recipient, also when a backup is restored (ARGS='--phone 05321234567', ARGS='--order ID'; ERASURES=file: the list of erasures, unless in DATA_DIR/backups)
	@mkdir -p -m 700 "$(DATA_DIR)/backups"
	@. "$(DATA_DIR)/demo.env"; \
	REDIS_URL="$$BACKUP_REDIS_URL" REDIS_CA_FILE="$$REDIS_CA_FILE" ENVIRONMENT=sandbox "$(DATA_DIR)/bin/reporting" erase \
		--record "$(or $(ERASURES),$(DATA_DIR)/backups/erasures)" $(ARGS)

backup: ## copy the running system, keys included, to TO (default: DATA_DIR/backups/<time>)
	@. "$(DATA_DIR)/demo.env"; \
	REDIS_URL="$$BACKUP_REDIS_URL" REDIS_CA_FILE="$$REDIS_CA_FILE" CLICKHOUSE_URL="$$RUN_CLICKHOUSE_URL" ENVIRONMENT=sandbox "$(DATA_DIR)/bin/reporting" backup \
		--to "$(or $(TO),$(DATA_DIR)/backups/$$(date -u +%Y%m%dT%H%M%SZ))" --include "$(DATA_DIR)/keys" --include "$(DATA_DIR)/demo.json"

restore: ## put the backup FROM=folder into DATA_DIR, which no run may be using (REPLACE=1 moves what is there aside; IDENTITY=file: age's private key; ERASURES=file: the list of erasures, unless beside FROM)
	@[ -n "$(FROM)" ] || { echo "restore: FROM=folder names the backup" >&2; exit 1; }
	@sh internal/stack/deps.sh $(SERVER)-server
	@$(MAKE) -s build
	@[ -n "$(CLICKHOUSE_URL)" ] || "$(DATA_DIR)/bin/devclickhouse" install
	@"$(DATA_DIR)/bin/run" -bin "$(DATA_DIR)/bin" -restore "$(FROM)" -age-identity "$(IDENTITY)" -erasures "$(ERASURES)" $(if $(REPLACE),-replace)

restore-drill: ## try FROM, a backup or a folder of them (default: the newest of DATA_DIR/backups), on a system of its own that ends with reconcile
	@sh internal/stack/deps.sh $(SERVER)-server
	@$(MAKE) -s build
	@"$(DATA_DIR)/bin/devclickhouse" install
	@"$(DATA_DIR)/bin/run" -bin "$(DATA_DIR)/bin" -drill -restore "$(or $(FROM),$(DATA_DIR)/backups)" -age-identity "$(IDENTITY)" -erasures "$(ERASURES)"

# Vetting compiles most of what a fresh machine has to; GOGC as below.
test: ## every rule once and the whole system once, a quarter of an hour on two cores, twenty minutes with nothing compiled; installs gcc, Redis and the ClickHouse library
	@sh internal/stack/deps.sh $(SERVER)-server gcc
	@unformatted=$$(gofmt -l gateway internal loadtest reporting worker); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:" >&2; echo "$$unformatted" >&2; exit 1; fi
	GOGC=400 CGO_ENABLED=0 go vet -tags long,compose,clients,growth ./...
	@CGO_ENABLED=0 go vet ./internal/testenv/testserver ./reporting/panel/auth # which have files without the tag long
	@CGO_ENABLED=0 go run ./internal/testenv/run $(ARGS)

test-long: deps ## all of it and what takes real time, kills, clusters, a browser, LibreOffice; race detector, random seeds; 40 minutes
	@CGO_ENABLED=0 go run ./internal/testenv/run -long $(ARGS)

flaky: ## run the tests of the packages that differ from BASE 20 times while other processes keep every core busy
	@sh internal/stack/deps.sh $(SERVER)-server gcc
	@CGO_ENABLED=0 go run ./internal/testenv/run -changed $(or $(BASE),HEAD~1) -count 20 -load $(ARGS)

openapi: ## renew what is derived from the OpenAPI documents: the Postman collection and the table of error codes
	@go run ./gateway/openapi/derive -write

alerts: ## check the alert rules and who hears of them: promtool and amtool (Debian's, fetched once into the cache, not installed), and one delivery of a real Prometheus and Alertmanager
	@sh internal/stack/deps.sh haproxy
	@cd configs/prometheus && sh tool.sh promtool check rules alerts.yml && sh tool.sh promtool check config prometheus.yml && \
		sh tool.sh promtool test rules alerts_test.yml && sh tool.sh amtool check-config alertmanager.yml
	@CGO_ENABLED=0 go test -count 1 -tags long -run '^TestOnCall_' -v ./internal/systemtest

check-config: ## check each program's settings and secrets, as they are in the environment, without starting anything (those of make run: check in the runbook)
	@for program in "gateway -check-config" "worker -check-config" "reporting serve --check-config"; do \
		echo "$$program"; go run ./$$program || failed=1; done; [ -z "$$failed" ]

lint: ## golangci-lint, staticcheck included
	go run $(GOLANGCI_LINT) run ./...

# Without its database it checks nothing, says so and fails.
vulncheck: ## known vulnerabilities in what the programs call (VULNDB=file:///... for a copy of the database)
	@go run $(GOVULNCHECK) $(if $(VULNDB),-db "$(VULNDB)") $(SHIPPED) || { \
		echo "vulncheck: failed: what was found stands above, or the database could not be read and nothing was checked" >&2; exit 1; }

licences: ## renew docs/licences.md, what others wrote in the programs and under which licence; fails on one that is not allowed (ARGS=-texts=/FILE: all texts, to go with the programs)
	@CGO_ENABLED=0 go test -count 1 ./internal/licences -write $(ARGS)

# GOGC: the compiler collects less often, which saves a fresh machine seconds.
build: ## compile the programs into DATA_DIR/bin
	@mkdir -p "$(DATA_DIR)/bin"
	@echo "building into $(DATA_DIR)/bin (the first make run takes about two minutes)"
	@GOGC=200 CGO_ENABLED=0 go build -o "$(DATA_DIR)/bin/" $(SHIPPED)

fuzz: ## run every fuzz target for FUZZ_TIME each
	@for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' "$$package" | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) "$$package" || exit 1; \
		done; \
	done

bench: ## measure against Redis's own limit: one table of ratios, 8 minutes; fails below a floor (ARGS=-help)
	@sh internal/stack/deps.sh $(SERVER)-server
	@go run ./loadtest/bench $(ARGS)

bench-scale: ## the same load on 1, 2 and 4 gateways and on a cluster of three, 3 minutes
	@sh internal/stack/deps.sh $(SERVER)-server
	@go run ./loadtest/bench -scale $(ARGS)

bench-replica: ## what redis.durability: replica costs, in turns with the default, 5 minutes; SERVER=valkey
	@sh internal/stack/deps.sh $(SERVER)-server
	@go run ./loadtest/bench -replica $(ARGS)

# Needs 10 GB of memory and of disk; GROWTH_ORDERS, GROWTH_ACCOUNTS and GROWTH_IDS shorten it.
bench-growth: ## the same figures with up to 5 million orders, 50,000 accounts and 1.8 billion remembered ids, 30 minutes
	@sh internal/stack/deps.sh $(SERVER)-server
	@go test -tags growth -run '^$$' -bench '^BenchmarkGrowth$$' -benchtime 1x -timeout 90m ./internal/ledger

bench-webhooks: ## webhooks: rate, latency, isolation, 100,000 waiting, kill -9; 8 minutes; fails beyond a limit (ARGS=-help)
	@sh internal/stack/deps.sh $(SERVER)-server
	@go run ./loadtest/bench webhooks $(ARGS)

bench-reporting: ## rows exported a second, reports over 5 million orders, memory of a download, a year closed, 12 minutes (ARGS=-help)
	@sh internal/stack/deps.sh $(SERVER)-server
	@go run ./internal/devclickhouse install
	@go run ./loadtest/bench reporting $(ARGS)

faults: ## every fault of the table, alone and in pairs, against the real system, 10 minutes; SEED=n repeats a run (ARGS=-help)
	@sh internal/stack/deps.sh $(SERVER)-server gcc
	@go run ./internal/devclickhouse install
	@go run ./loadtest/faults -duration 10m $(if $(SEED),-seed $(SEED)) $(ARGS)

faults-minute: ## a minute of it, as a test with the race detector
	@sh internal/stack/deps.sh $(SERVER)-server gcc
	@go run ./internal/devclickhouse install
	CGO_ENABLED=1 go test -tags long -race -count=1 -v -timeout 15m -run '^TestSuite_' ./loadtest/faults

mutants: ## programs built with one defect at a time: make faults must catch each one (ARGS=-help)
	@sh internal/stack/deps.sh $(SERVER)-server gcc
	@go run ./internal/devclickhouse install
	@go run ./loadtest/faults mutants $(ARGS)

rules: ## break each rule of the contract by itself, and see a test that names it fail (ARGS='-only limits/,errors/RATE_LIMITED')
	@sh internal/stack/deps.sh $(SERVER)-server gcc
	@go run ./internal/devclickhouse install
	@go run ./internal/rules/prove -folder "$(DATA_DIR)/rules" $(ARGS)

overload: ## ten times the sustainable load, full memory, full disk, ClickHouse unavailable, a clock that jumps, floods from a fleet and without credentials; eight neighbours beside a healthy vendor: fifteen cases, half an hour (ARGS=-help)
	@sh internal/stack/deps.sh $(SERVER)-server gcc
	@go run ./internal/devclickhouse install
	@go run ./loadtest/faults overload $(ARGS)

simulate: ## days of two gateways, two workers and an exporter on a clock that jumps, from 1,000 seeds (SEEDS=20); SEED=n plays one (ARGS=-help)
	@sh internal/stack/deps.sh $(SERVER)-server gcc
	@ENVIRONMENT=sandbox go run ./loadtest/simulation $(if $(SEED),-seed $(SEED),-seeds $(or $(SEEDS),1000)) $(ARGS)

faults-reporting: ## 50,000 orders with exporter and ClickHouse killed again and again: reports must be exact; months that are closed and corrected while all of it is killed after each step; 10 minutes
	@sh internal/stack/deps.sh $(SERVER)-server
	@go run ./internal/devclickhouse install
	@FAULTS=long go test -tags long -count=1 -timeout 30m -v -run '^TestExactness' ./reporting/reports
	@go test -tags long -count=1 -timeout 30m -v -run '^Test(Crash|Books)_' ./reporting/closing

loadtest: ## play the k6 scripts, each against a system of its own (9 minutes), or against a deployment (BASE_URL=https://… ACCOUNTS=file); leaves a page, JSON and JUnit (ARGS=-help)
	@[ -n "$(BASE_URL)" ] || sh internal/stack/deps.sh $(SERVER)-server
	@go run ./loadtest/k6 $(ARGS)

load-accounts: ## accounts for load tests in the file ACCOUNTS: COUNT=8 creates them, ORDERS=1200 lets each send so many in 10 s, RESTORE=yes gives their limits back, SUSPEND=yes suspends them; needs OPS_URL and ADMIN_KEY
	@go run ./loadtest/k6 accounts $(if $(COUNT),-count $(COUNT)) $(if $(ORDERS),-orders $(ORDERS)) $(if $(filter yes,$(RESTORE)),-restore) $(if $(filter yes,$(SUSPEND)),-suspend)

check-clients: ## clients of other languages walk to a delivered order, over HTTP/1.1 and over TLS with HTTP/2, 2 minutes; installs them
	@for name in $(SERVER)-server curl haproxy php java python-requests; do sh internal/stack/deps.sh $$name || echo "check-clients: without $$name"; done
	@go run ./loadtest/k6 -install
	@CGO_ENABLED=0 go test -tags clients -count 1 -v ./loadtest/clients

# Not by go test: signals must reach what removes the containers. In a network of its own,
# whose ports are free.
compose-test: ## build and run docker-compose.yml under a Docker daemon of its own: walk, day, kills, upgrade, restore; nothing is left; root, 15 minutes
	@sh internal/stack/deps.sh docker mmdebstrap openssl valkey-server
	@mkdir -p "$(DATA_DIR)/bin"
	@CGO_ENABLED=0 go test -tags compose -c -o "$(DATA_DIR)/bin/compose-test" ./internal/composetest
	@bin=$$(cd "$(DATA_DIR)/bin" && pwd) && cd internal/composetest && exec unshare --net "$$bin/compose-test" -test.timeout 30m

rolling: ## replace the programs of the commit BASE by these and some of them back, under load: nothing may be lost
	@sh internal/stack/deps.sh $(SERVER)-server gcc
	@ROLLING_BASE=$(or $(BASE),HEAD~1) CGO_ENABLED=0 go run ./internal/testenv/run -long -run '^TestRolling_UpgradeAndWayBackLoseNothing$$' ./internal/systemtest

env: ## write fresh keys for docker-compose.yml to .env, once: make env ENVIRONMENT=sandbox (a courier is played) or ENVIRONMENT=production (real orders)
	@case "$(ENVIRONMENT)" in sandbox|production) ;; *) echo "env: say which: make env ENVIRONMENT=sandbox (a courier is played and no order is real) or make env ENVIRONMENT=production" >&2; exit 1;; esac
	@test ! -e .env || { echo ".env is there already"; exit 1; }
	@umask 077; key() { head -c 32 /dev/urandom | base64 | tr -d '\n'; }; \
	hex() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }; \
	token=$$(hex); \
	echo "ENVIRONMENT=$(ENVIRONMENT)" > .env; \
	for user in GATEWAY WORKER REPORTING BACKUP OPERATOR; do printf 'REDIS_%s_PASSWORD=%s\n' "$$user" "$$(hex)"; done >> .env; \
	printf 'TOKEN_KEYS=k1:%s\nTRACKING_KEYS=k1:%s\nWEBHOOK_KEYS=k1:%s\nBOOKS_KEYS=k1:%s\nADMIN_KEY=%s\nCLICKHOUSE_PASSWORD=%s\nREPORTS_TOKEN=%s\nREPORT_TOKENS=compose:finance:sha256:%s\nGRAFANA_PASSWORD=%s\n' \
		"$$(key)" "$$(key)" "$$(key)" "$$(key)" "$$(hex)" "$$(hex)" "$$token" "$$(printf %s "$$token" | sha256sum | cut -d ' ' -f 1)" "$$(hex)" >> .env
	@echo "wrote .env for ENVIRONMENT=$(ENVIRONMENT)"
	@[ "$(ENVIRONMENT)" = sandbox ] || echo "production does not start before .env has TRACKING_BASE_URL=https://…/track (docs/configuration.md)"

certificate: ## make a certificate of localhost for docker-compose.yml's balancer, and name it in .env; a month, for this machine only
	@test -e .env || { echo "run make env ENVIRONMENT=… first"; exit 1; }
	@test ! -e .certificate.pem || { echo ".certificate.pem is there already"; exit 1; }
	@sh internal/stack/deps.sh openssl
	@openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost \
		-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout .certificate.key -out .certificate.pem 2>/dev/null
	@cat .certificate.key >> .certificate.pem; rm .certificate.key; chmod 644 .certificate.pem # haproxy is another user in its container
	@echo "BALANCER_CERTIFICATE=./.certificate.pem" >> .env
	@echo "wrote .certificate.pem"

clean: ## forget everything under DATA_DIR (orders, keys, logs, binaries), but for backups and what a restore moved aside
	@if [ -e "$(DATA_DIR)/lock" ] && command -v flock >/dev/null && ! flock -n "$(DATA_DIR)/lock" true; then \
		echo "clean: $(DATA_DIR) is in use by a run" >&2; exit 1; fi
	@cd "$(DATA_DIR)" 2>/dev/null && rm -rf redis clickhouse keys logs nightly bin loadtest bench.json bench-scale.json bench-webhooks.json bench-reporting.json demo.json demo.json.partial demo.env restore-unfinished lock || true
	@rmdir "$(DATA_DIR)" 2>/dev/null || true
