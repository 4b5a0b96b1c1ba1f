package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
)

// checkVariables checks every variable of `make run` without starting anything,
// and writes what is in force. No password is shown.
func checkVariables(env func(string) string, out io.Writer) error {
	o, err := options(env, io.Discard)
	faults := []error{err}
	text := "# make run: ok\n"
	for _, v := range []struct {
		name, value string
		show        func(string) (string, error)
	}{
		{"DATA_DIR", o.DataDir, nil},
		{"GATEWAY_ADDR", o.GatewayAddr, shownAddr}, {"OPS_ADDR", o.OpsAddr, shownAddr}, {"PANEL_ADDR", o.PanelAddr, shownAddr},
		{"WORKER_OPS_ADDR", o.WorkerOpsAddr, shownAddr}, {"RECEIVER_ADDR", o.ReceiverAddr, shownAddr},
		{"REPORTING_OPS_ADDR", o.ReportingOpsAddr, shownAddr}, {"CLICKHOUSE_ADDR", o.ClickHouseAddr, shownAddr},
		{"REDIS_URL", o.RedisURL, shownURL}, {"CLICKHOUSE_URL", o.ClickHouseURL, shownURL},
		{"COURIER", o.Courier, nil}, {"COURIER_STEP", o.CourierStep.String(), nil}, {"REDIS_TLS", strconv.FormatBool(o.RedisTLS), nil},
	} {
		if v.show != nil {
			if v.value, err = v.show(v.value); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", v.name, err))
			}
		}
		text += fmt.Sprintf("%-18s %s\n", v.name, v.value)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	_, err = io.WriteString(out, text)
	return err
}

// shownAddr checks host:port; an address that the programs choose is empty.
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

// shownURL checks the form of a URL, empty for one that this run makes itself.
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
