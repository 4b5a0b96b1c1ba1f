//go:build compose

package composetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// receiverAddr is on the workers' loopback, the only place from which a sandbox takes
// webhooks without TLS.
const receiverAddr = "127.0.0.1:9999"

// receivers answers with a handler in the network of each worker's container, those
// included that come later, until ctx ends.
func (d *docker) receivers(ctx context.Context, h http.Handler) {
	serving := map[string]*http.Server{} // by container, and process of it
	for ctx.Err() == nil {
		all, err := d.containers(ctx)
		if err != nil { // one was removed meanwhile
			_ = harness.Sleep(ctx, 100*time.Millisecond)
			continue
		}

		current := map[string]int{}
		for name, c := range all {
			if pid := mainProcess(c.ID); pid != 0 && (name == "worker-1" || name == "worker-2") {
				current[c.ID+" "+strconv.Itoa(pid)] = pid
			}
		}

		for key, server := range serving {
			if current[key] == 0 {
				_ = server.Close() // or the network of a container that has gone would stay
				delete(serving, key)
			}
		}

		for key, pid := range current {
			if serving[key] != nil {
				continue
			}
			if listener, err := listenIn(pid); err == nil {
				server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
				serving[key] = server
				go func() { _ = server.Serve(listener) }() // ends with Close
			}
		}

		_ = harness.Sleep(ctx, 300*time.Millisecond)
	}

	for _, server := range serving {
		_ = server.Close()
	}
}

// listenIn listens at receiverAddr in the network of a process.
func listenIn(pid int) (listener net.Listener, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var network *os.File
		network, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			return
		}

		defer network.Close()
		err = unix.Setns(int(network.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			listener, err = net.Listen("tcp", receiverAddr)
		}
	}()

	<-done

	return listener, err
}

// order is one that was acknowledged.
type order struct {
	vendor   *stack.Vendor
	id       string
	body     []byte
	key      string
	answered []byte
}

// load are vendors that create orders, one after the other each, until they are told to
// stop. What is refused for now or not answered is sent again, as clients do.
type load struct {
	vendors []*stack.Vendor
	hooks   map[*stack.Vendor]*receiver.Receiver

	mu       sync.Mutex
	orders   []*order
	unsaved  []*order // that the backup does not have
	retries  int
	longest  time.Duration // from the first attempt to the answer
	reported int           // orders
}

const (
	loadVendors = 4
	loadPause   = 100 * time.Millisecond // of a vendor between two orders
	giveUp      = time.Minute            // of one order
)

func openLoad(ctx context.Context, apis *stack.APIs, mux *http.ServeMux) (*load, error) {
	l := &load{hooks: map[*stack.Vendor]*receiver.Receiver{}}
	for i := range loadVendors {
		path := fmt.Sprintf("/load-%d-%d", os.Getpid(), i)
		v, err := apis.OpenVendor(ctx, stack.VendorOptions{
			Name: "Load " + strconv.Itoa(i), Limits: stack.Unlimited, WebhookURL: "http://" + receiverAddr + path,
		})
		if err != nil {
			return nil, err
		}
		l.hooks[v], err = receiver.New(receiver.Options{Secrets: []string{v.WebhookSecret}})
		if err != nil {
			return nil, err
		}

		mux.Handle(path, l.hooks[v])
		l.vendors = append(l.vendors, v)
	}

	return l, nil
}

// during creates orders until do has returned.
func (l *load) during(ctx context.Context, do func(ctx context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	stop := make(chan struct{})
	group.Go(func() error {
		defer close(stop)
		return do(ctx)
	})

	for _, v := range l.vendors {
		group.Go(func() error {
			for {
				select {
				case <-stop:
					return nil
				case <-time.After(loadPause):
				}
				if err := l.create(ctx, v); err != nil {
					return err
				}
			}
		})
	}

	return group.Wait()
}

// create creates an order, within a minute.
func (l *load) create(ctx context.Context, v *stack.Vendor) error {
	content := v.Order(nil)
	body, err := json.Marshal(content)
	if err != nil {
		return err
	}

	o := &order{vendor: v, body: body, key: v.AccountID + fmt.Sprint(content["externalOrderId"])}
	began := time.Now()
	for tries := 0; ; tries++ {
		a, err := v.Do(ctx, http.MethodPost, "/orders", body, "X-Idempotency-Key", o.key)
		if err == nil && a.OK() {
			var created struct{ OrderID string }
			if err := a.Into(&created); err != nil {
				return err
			}

			o.id, o.answered = created.OrderID, a.Raw
			l.mu.Lock()
			defer l.mu.Unlock()
			l.orders = append(l.orders, o)
			l.retries += tries
			l.longest = max(l.longest, time.Since(began))

			return nil
		}

		wait := 100 * time.Millisecond
		if err == nil {
			err = a.Err()
			if a.Code != "SERVICE_UNAVAILABLE" {
				return fmt.Errorf("order %s: %w", o.key, err)
			}
			wait = max(wait, min(a.RetryAfter(), time.Second))
		}

		if time.Since(began) > giveUp {
			return fmt.Errorf("order %s was refused for %v: %w", o.key, giveUp, err)
		}
		if err := harness.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// each calls check for every acknowledged order, some at once.
func (l *load) each(ctx context.Context, check func(context.Context, *order) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, o := range l.orders {
		group.Go(func() error {
			if err := check(ctx, o); err != nil {
				return fmt.Errorf("order %s: %w", o.id, err)
			}
			return nil
		})
	}

	return group.Wait()
}

// delivered checks that every acknowledged order ends as Delivered, for who reads it and
// at the receivers of webhooks, and that its creation sent again is recognised.
func (l *load) delivered(ctx context.Context) error {
	err := harness.Await(ctx, "a webhook of each delivery", 3*time.Minute, 200*time.Millisecond, func() (bool, error) {
		return !slices.ContainsFunc(l.orders, func(o *order) bool {
			return !slices.ContainsFunc(l.hooks[o.vendor].Timeline(o.id), func(e receiver.Entry) bool { return e.Status == "Delivered" })
		}), nil
	})
	if err != nil {
		return err
	}
	return l.known(ctx)
}

// known checks that every acknowledged order is Delivered, and its creation recognised.
func (l *load) known(ctx context.Context) error {
	for _, v := range l.vendors {
		if counts := l.hooks[v].Counts(); counts.Changed > 0 || len(counts.Invalid) > 0 {
			return fmt.Errorf("webhooks: %d changed, not readable: %v", counts.Changed, maps.Collect(maps.All(counts.Invalid)))
		}
	}

	return l.each(ctx, func(ctx context.Context, o *order) error {
		again, err := o.vendor.Do(ctx, http.MethodPost, "/orders", o.body, "X-Idempotency-Key", o.key)
		if err != nil {
			return err
		}

		if again.Header.Get("Idempotent-Replayed") != "true" || !bytes.Equal(again.Raw, o.answered) {
			return fmt.Errorf("its creation again: %s, not %s", again.Raw, o.answered)
		}

		for {
			var read struct{ Status string }
			a, err := o.vendor.Do(ctx, http.MethodGet, "/orders/"+o.id, nil)
			if err == nil && a.Status == http.StatusTooManyRequests {
				if err := harness.Sleep(ctx, a.RetryAfter()); err != nil {
					return err
				}
				continue
			}

			if err == nil {
				err = a.Into(&read)
			}

			if err == nil && read.Status != "Delivered" {
				err = errors.New("is " + read.Status)
			}

			return err
		}
	})
}

// createUnsaved creates orders that a restore of the backup that there is takes away.
func (l *load) createUnsaved(ctx context.Context) error {
	saved := len(l.orders)
	err := l.during(ctx, func(ctx context.Context) error { return harness.Sleep(ctx, time.Second) })
	l.orders, l.unsaved = l.orders[:saved:saved], l.orders[saved:]
	if err == nil && len(l.unsaved) == 0 {
		err = errors.New("no order was created after the backup")
	}
	return err
}

// unsavedGone checks that none of those is known.
func (l *load) unsavedGone(ctx context.Context) error {
	for _, o := range l.unsaved {
		a, err := o.vendor.Do(ctx, http.MethodGet, "/orders/"+o.id, nil)
		if err != nil || a.Code != "ORDER_NOT_FOUND" {
			return fmt.Errorf("order %s is younger than the backup and was not gone: %w", o.id, cmp.Or(err, fmt.Errorf("%d, %s", a.Status, a.Raw)))
		}
	}
	return nil
}

// report says what was done since the last call.
func (l *load) report() string {
	text := fmt.Sprintf("%d orders acknowledged, %d attempts repeated, the longest order took %.1f s", len(l.orders)-l.reported, l.retries, l.longest.Seconds())
	l.reported, l.retries, l.longest = len(l.orders), 0, 0
	return text
}

// login gets the vendors new tokens.
func (l *load) login(ctx context.Context, vendor *client.Client) error {
	for _, v := range l.vendors {
		c, err := vendor.Login(ctx, "/token", v.ClientID, v.ClientSecret)
		if err != nil {
			return err
		}
		v.Client = c
	}
	return nil
}
