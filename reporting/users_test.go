package main

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive/archiveenv"
)

// With the users of configs/clickhouse/users.sql the exporter and the reconciler work with the one who
// writes, and the panel's pages and reports with the one who reads.
func TestServe_EachRoleWorksWithItsUserOfClickHouse(t *testing.T) {
	t.Parallel()

	e := archiveenv.NewOn(testenv.New(t), testserver.DedicatedClickHouse(t))
	e.Delivered(time.Now())
	startAs := func(user string) {
		e.ClickHouse.Kill(t)
		e.ClickHouse.StartAs(t, testserver.ReadRights(t, "../configs/clickhouse/users.sql", user).On(e.Database))
	}

	startAs("reporting_write")
	ops := freeAddr(t)
	exporter := program(t, append(variables(e), "REPORTING_OPS_ADDR="+ops), "serve", "--roles", "export,reconcile", "--config", settingsFile(t))
	testenv.Must(t, exporter.Start())
	awaitAnswer(t, "http://"+ops+"/readyz", "200 ready")
	e.AwaitExported()
	testenv.Must(t, errors.Join(exporter.Process.Signal(syscall.SIGTERM), exporter.Wait()))
	e.Want("the order", "count() FROM "+e.Database+".orders", "1")
	forged := "INSERT INTO " + e.Database + ".late_deliveries (account_id, business_day, order_id, reported_at, stored_at) " +
		"SETTINGS insert_allow_materialized_columns = 1 SELECT generateUUIDv4(), today(), generateUUIDv4(), now64(3), toDateTime64(0, 3)"
	refused := answerTo(t, e.ClickHouse.URL, forged)
	if !strings.Contains(refused, "insert_allow_materialized_columns should not be changed") {
		t.Errorf("whoever writes can say when a row was stored: %s", refused)
	}

	// What is wrong with the user who reads stops nobody who writes.
	e.Delivered(time.Now())
	both := startPanel(t, e, e.ClickHouse.URL, "export,panel", "CLICKHOUSE_READ_URL=http://reader@127.0.0.1:1")
	awaitAnswer(t, "http://"+both.ops+"/readyz", "200 ready")
	e.AwaitExported()
	if got := both.report(t); got != "503" {
		t.Errorf("without a user who reads, reports answer %s", got)
	}

	testenv.Must(t, both.stop())

	startAs("reporting_read")
	nowhere := "http://writer@127.0.0.1:1"
	s := startPanel(t, e, nowhere, "panel", "CLICKHOUSE_READ_URL="+e.ClickHouse.URL)
	awaitAnswer(t, "http://"+s.ops+"/readyz", "200 ready")
	s.awaitReports(t, "200")
	testenv.Must(t, s.stop())

	// Whoever may not make what is missing says who can.
	said, err := run(t, &archiveenv.System{Env: e.Env, ClickHouse: e.ClickHouse, Database: "another"}, e.ClickHouse.URL, "migrate")
	if err == nil || !strings.Contains(said, "run `reporting migrate`") || !strings.Contains(said, "making it failed") || !strings.Contains(said, "ACCESS_DENIED") {
		t.Errorf("%v, said %s", err, said)
	}
}

// answerTo returns ClickHouse's answer to a statement.
func answerTo(t *testing.T, url, statement string) string {
	t.Helper()
	resp, err := http.Post(url, "text/plain", strings.NewReader(statement))
	testenv.Must(t, err)
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	testenv.Must(t, err)

	return resp.Status + " " + string(said)
}

// The process that customers reach has Redis and the keys of links, and nothing else of reporting's.
func TestServe_TrackingAloneNeedsNoOtherSecret(t *testing.T) {
	t.Parallel()

	e := archiveenv.New(t)
	o := e.Delivered(time.Now())
	keys := delivery.TrackingKeys{Current: "t1", Keys: map[string][]byte{"t1": make([]byte, 32)}}
	ops, customers := freeAddr(t), freeAddr(t)
	env := append(variables(e), "CLICKHOUSE_URL=http://127.0.0.1:1", "ADMIN_KEY=", "BOOKS_KEYS=", "REPORT_TOKENS=", "PANEL_USERS=",
		"TRACKING_KEYS=t1:"+base64.StdEncoding.EncodeToString(make([]byte, 32)), "REPORTING_OPS_ADDR="+ops)

	said, err := program(t, append(env, "TRACKING_ADDR="), "serve", "--roles", "tracking", "--config", settingsFile(t)).CombinedOutput()
	if err == nil || !strings.Contains(string(said), "panel.tracking_addr: the role tracking needs it (TRACKING_ADDR)") {
		t.Errorf("without an address: %v, said %s", err, said)
	}

	cmd := program(t, append(env, "TRACKING_ADDR="+customers), "serve", "--roles", "tracking", "--config", settingsFile(t))
	testenv.Must(t, cmd.Start())
	awaitAnswer(t, "http://"+ops+"/readyz", "200 ready")
	awaitAnswer(t, "http://"+customers+"/track/"+keys.Token(o.ID), "200 ")
	for _, path := range []string{"/", "/login", "/payments", "/reports/control-totals.json"} {
		if got := answer("http://" + customers + path); !strings.HasPrefix(got, "404") {
			t.Errorf("%s: %.100s", path, got)
		}
	}

	testenv.Must(t, errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()))
}
