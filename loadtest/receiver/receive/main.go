// Command receive is a verifying webhook receiver of its own: it prints one line per event.
//
//	POST /        a webhook
//	GET  /counts  how many webhooks arrived, by type, and how many were refused, by reason, as JSON
//	GET  /healthz 200 while it runs
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"vendorapi/internal/config"
	"vendorapi/internal/service"
	"vendorapi/internal/version"
	"vendorapi/loadtest/receiver"
)

const usage = `Usage: go run ./loadtest/receiver/receive [flags]

Receives webhooks, verifies their signatures and prints one line per event. The
secret is in WEBHOOK_SECRET or the file that WEBHOOK_SECRET_FILE names.

Flags:
`

// clock is the layout in which times are printed.
const clock = "15:04:05.000"

func main() { service.Main("receive", run) }

func run(ctx context.Context, _ []string, _, _ io.Writer) error {
	addr := flag.String("addr", "127.0.0.1:8085", "address to listen on")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}

	version.AddFlag("receive")
	flag.Parse()

	secret, err := config.Secret("WEBHOOK_SECRET")
	if err != nil {
		return err
	}

	r, err := receiver.New(receiver.Options{Secrets: []string{secret}, Seen: printEvent, Refused: printRefusal})
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}

	return service.Serve(ctx, listener, routes(r))
}

// routes returns the handler of the program's paths.
func routes(r *receiver.Receiver) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", r)
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.Counts()) // it fails only if the client has gone
	})
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {}) // 200
	return mux
}

func printRefusal(status int, reason string) {
	hint := ""
	if status == http.StatusUnauthorized {
		hint = " (was the secret rotated, or the webhook removed, since this was started?)"
	}
	fmt.Printf("%s  refused with %d: %s%s\n", time.Now().Format(clock), status, reason, hint)
}

func printEvent(e receiver.Event, duplicate bool) {
	mark := ""
	if duplicate {
		mark = "  (duplicate)"
	}
	fmt.Printf("%s  %s%s\n", time.Now().Format(clock), e, mark)
}
