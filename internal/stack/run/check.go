package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
)

// checkVariables judges every variable of `make run` without starting anything,
// and writes what is in force. No password is shown.
func checkVariables(env func(string) string, out io.Writer) error {
	o, err := options(env, io.Discard)
	faults := []error{err}
	rows := []struct{ name, value string }{
		{"DATA_DIR", o.DataDir},
		{"GATEWAY_ADDR", o.GatewayAddr}, {"OPS_ADDR", o.OpsAddr}, {"PANEL_ADDR", o.PanelAddr},
		{"WORKER_OPS_ADDR", o.WorkerOpsAddr}, {"RECEIVER_ADDR", o.ReceiverAddr}, {"REPORTING_OPS_ADDR", o.ReportingOpsAddr},
		{"CLICKHOUSE_ADDR", o.ClickHouseAddr},
		{"REDIS_URL", o.RedisURL}, {"CLICKHOUSE_URL", o.ClickHouseURL},
	}
	for i := range rows {
		var fault error
		switch row := &rows[i]; row.name {
		case "DATA_DIR":
		case "REDIS_URL", "CLICKHOUSE_URL":
			row.value, fault = shownURL(row.value)
		default:
			row.value, fault = shownAddr(row.value)
		}
		if fault != nil {
			faults = append(faults, fmt.Errorf("%s: %w", rows[i].name, fault))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	fmt.Fprintln(out, "# make run: ok")
	for _, row := range rows {
		fmt.Fprintf(out, "%-18s %s\n", row.name, row.value)
	}
	fmt.Fprintf(out, "%-18s %s\n%-18s %s\n%-18s %t\n", "COURIER", o.Courier, "COURIER_STEP", o.CourierStep, "REDIS_TLS", o.RedisTLS)
	return nil
}

// shownAddr judges host:port; an address that the programs choose is empty.
func shownAddr(addr string) (string, error) {
	if addr == "" {
		return "(a free port)", nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("%q: want host:port", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%q: want a port from 1 to 65535", addr)
	}
	return addr, nil
}

// shownURL judges the form of a URL, empty for one that this run makes itself.
func shownURL(text string) (string, error) {
	if text == "" {
		return "(started by this run)", nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" && u.Scheme != "unix" {
		return "", errors.New("no URL (it is not shown, for it may hold a password)")
	}
	return u.Redacted(), nil
}
