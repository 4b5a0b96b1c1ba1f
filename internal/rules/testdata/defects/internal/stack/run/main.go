package main

import (
	"io"
	"net"
	"time"

	"vendorapi/internal/rules/broken"
	"vendorapi/internal/stack"
)

func options(env func(string) string, out io.Writer) (stack.Options, error) {
	o, err := optionsOriginal(env, out)
	switch broken.Rule {
	case "make-run/DATA_DIR":
		o.DataDir = "data"
	case "make-run/GATEWAY_ADDR":
		o.GatewayAddr = ":8080"
	case "make-run/OPS_ADDR":
		o.OpsAddr = ":8081"
	case "make-run/PANEL_ADDR":
		o.PanelAddr = ":8090"
	case "make-run/REDIS_URL":
		o.RedisURL = ""
	case "make-run/CLICKHOUSE_URL":
		o.ClickHouseURL = ""
	case "make-run/COURIER":
		o.Courier = "auto"
	case "make-run/COURIER_STEP":
		o.CourierStep = time.Second
	}
	return o, err
}

func ifFree(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if broken.Rule == "make-run/other-programs-on-the-machine" && err == nil && port != "" { // whoever has it
		return addr
	}
	return ifFreeOriginal(addr)
}
