package main

import (
	"context"
	"net"
	"net/http"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/receiver"
)

// manner is how a vendor's receiver behaves.
type manner int

const (
	healthy manner = iota
	failing        // answers 500 with a page of its framework
	gone           // answers 410
	absent         // nobody listens
)

// listen registers a receiver of the plan's manner for the vendor.
func (w *world) listen(ctx context.Context, v *vendor) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var set stack.Webhook
	url := map[string]string{"url": "http://" + l.Addr().String() + "/hooks/delivery"}
	if err := v.Call(ctx, http.MethodPut, "/webhook", url, &set); err != nil {
		return err
	}
	switch v.plan.receiver {
	case healthy:
		r, err := receiver.New(receiver.Options{Secrets: []string{set.Secret}})
		if err != nil {
			return err
		}
		w.serve(l, r)
	case failing:
		w.serve(l, answer(http.StatusInternalServerError, `<html><head><title>Sunucu hatası</title></head><body>
<h1>500</h1><p>SQLSTATE[HY000] [2002] Connection refused</p></body></html>`))
	case gone:
		w.serve(l, answer(http.StatusGone, "bu uç kapatıldı\n"))
	case absent:
		return l.Close()
	}
	return nil
}

func answer(status int, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text)) // the worker may have gone
	})
}
