// Command receive is a verifying webhook receiver of its own: it prints one
// line per event and its figures at GET /stats.
//
//	POST /        a webhook
//	GET  /stats   receiver.Counts as JSON
//	GET  /healthz 200 while it runs
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"vendorapi/internal/service"
	"vendorapi/internal/version"
	"vendorapi/loadtest/receiver"
)

const usage = `Usage: go run ./loadtest/receiver/receive [flags]

Receives webhooks and verifies their signatures: one line per event, figures at
GET /stats. The secret is in WEBHOOK_SECRET or a file.

Flags:
`

func main() { service.Main("receive", run) }

func run(ctx context.Context, _ []string, _, _ io.Writer) error {
	addr := flag.String("addr", "127.0.0.1:8085", "address to listen on")
	secretFile := flag.String("secret-file", "", "file that holds the webhook secret; WEBHOOK_SECRET is read when empty")
	quiet := flag.Bool("quiet", false, "print no line per event")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	version.AddFlag("receive")
	flag.Parse()
	secret, err := readSecret(*secretFile)
	if err != nil {
		return err
	}
	options := receiver.Options{Secrets: []string{secret}}
	if !*quiet {
		options.Seen, options.Refused = printEvent, printRefusal
	}
	r, err := receiver.New(options)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	return service.Serve(ctx, listener, routes(r))
}

func readSecret(path string) (string, error) {
	secret := os.Getenv("WEBHOOK_SECRET")
	if path != "" {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read the webhook secret: %w", err)
		}
		secret = string(content)
	}
	if secret = strings.TrimSpace(secret); secret == "" {
		return "", errors.New("give the webhook secret with -secret-file or in WEBHOOK_SECRET")
	}
	return secret, nil
}

func routes(r *receiver.Receiver) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", r)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.Counts()) // the client disconnected: nothing to do
	})
	return mux
}

func printRefusal(status int, reason string) {
	hint := ""
	if status == http.StatusUnauthorized {
		hint = " (was the secret rotated, or the webhook removed, since this was started?)"
	}
	fmt.Printf("%s  refused with %d: %s%s\n", time.Now().Format(time.TimeOnly), status, reason, hint)
}

func printEvent(e receiver.Event, duplicate bool) {
	mark := ""
	if duplicate {
		mark = "  (duplicate)"
	}
	fmt.Printf("%s  %s%s\n", time.Now().Format(time.TimeOnly), e, mark)
}
