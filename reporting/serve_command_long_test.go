//go:build long

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive/archiveenv"
)

// A process that cannot reach what it needs waits and says so; once everything
// is there it works, and SIGTERM ends it in order.
func TestServe_WaitsForBothSidesAndStopsInOrder(t *testing.T) {
	t.Parallel()

	engine := testserver.DedicatedClickHouse(t)
	redis := testserver.DedicatedRedis(t, stack.RedisOptions{})
	s := archiveenv.NewOn(testenv.NewOn(t, redis), engine)
	o := s.Delivered(time.Now())
	ops := freeAddr(t)
	engine.Kill(t)
	redis.Kill()
	cmd := program(t, append(variables(s), "REPORTING_OPS_ADDR="+ops), "serve", "--config", settingsFile(t))
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	awaitAnswer(t, "http://"+ops+"/readyz", "503 waiting for Redis")
	if err := redis.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	awaitAnswer(t, "http://"+ops+"/readyz", "503 waiting for ClickHouse")
	engine.Start(t)
	awaitAnswer(t, "http://"+ops+"/readyz", "200 ready")
	s.AwaitExported()
	s.Want("the order", "status FROM "+s.Database+".orders WHERE order_id = '"+o.ID.String()+"'", "Delivered")
	awaitAnswer(t, "http://"+ops+"/metrics", "reporting_reconcile_last_completed_timestamp_seconds 1")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &log)
	}
}
