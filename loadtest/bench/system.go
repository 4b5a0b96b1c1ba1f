package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs/blockdevice"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

const (
	// vendorCount is how many accounts the orders come from, in turn: enough that
	// every partition, and every master of a cluster, gets its share.
	vendorCount = 48
	// connections is how many requests can be in flight at once, as in the in-process measurements.
	connections = 64
)

// system is the programs, with vendors who order and receivers of their webhooks in this process.
type system struct {
	*harness.System
	gateways []*stack.Program
	addrs    []string       // host:port of each gateway's Vendor API
	redises  []*stack.Redis // every master
	vendors  []*stack.Vendor
	batches  atomic.Int64 // of orders

	receivers    []*receiver.Receiver
	seen         atomic.Pointer[func(receiver.Event)] // called with every distinct event; optional
	webhookBytes atomic.Int64                         // of all requests, heads and bodies
}

// withSystem starts the programs, opens the vendors' stores and stops everything after
// use. Orders move by requests to the fleet API only. cluster may be nil.
func (b *bench) withSystem(ctx context.Context, name string, cluster *stack.Cluster, use func(context.Context, *system) error) error {
	options := stack.Options{DataDir: b.file(name), BinDir: b.file("bin"), Courier: "manual", Out: b.out}
	if cluster != nil {
		options.RedisURL = cluster.URL
	}
	if err := stack.Build(ctx, options.BinDir); err != nil {
		return err
	}
	return harness.WithSystem(ctx, b.out, false, options, func(ctx context.Context, started *harness.System) error {
		s := &system{System: started, gateways: []*stack.Program{started.Gateway}, redises: []*stack.Redis{started.Redis},
			addrs: []string{hostOf(started.Demo.BaseURL)}}
		if cluster != nil {
			s.redises = cluster.Nodes
		}
		if err := s.open(ctx); err != nil {
			return err
		}
		return use(ctx, s)
	})
}

func (s *system) open(ctx context.Context) error {
	limit := map[string]int{"requestsPerSecond": delivery.MaxFleetRequests} // nothing here reaches it
	err := s.Admin.Call(ctx, http.MethodPatch, "/fleets/"+s.FleetID, limit, nil)
	if err != nil {
		return err
	}
	s.vendors, err = s.OpenVendors(ctx, vendorCount, func(i int) stack.VendorOptions {
		return stack.VendorOptions{Name: fmt.Sprintf("Vendor %d", i), Limits: stack.Unlimited, WebhookURL: s.HooksURL + "/" + strconv.Itoa(i)}
	})
	if err != nil {
		return err
	}
	for i, v := range s.vendors {
		r, err := receiver.New(receiver.Options{Secrets: []string{v.WebhookSecret}, Seen: func(e receiver.Event, duplicate bool) {
			if seen := s.seen.Load(); seen != nil && !duplicate {
				(*seen)(e)
			}
		}})
		if err != nil {
			return err
		}
		s.receivers = append(s.receivers, r)
		s.Hooks.HandleFunc("/"+strconv.Itoa(i), func(w http.ResponseWriter, req *http.Request) {
			s.webhookBytes.Add(requestBytes(req))
			r.ServeHTTP(w, req)
		})
	}
	return nil
}

func hostOf(origin string) string { return strings.TrimPrefix(origin, "http://") }

func requestBytes(r *http.Request) int64 {
	n := len(r.Method) + len(" ") + len(r.RequestURI) + len(" HTTP/1.1\r\nHost: ") + len(r.Host) + len("\r\n\r\n")
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(": ") + len(v) + len("\r\n")
		}
	}
	return int64(n) + r.ContentLength
}

// checkReceivers refuses what no receiver should ever see: an event that cannot
// be verified or read, or that came twice with different bytes.
func (s *system) checkReceivers() error {
	for i, r := range s.receivers {
		c := r.Counts()
		for reason, n := range c.Invalid {
			return fmt.Errorf("vendor %d: %d webhooks refused: %s", i, n, reason)
		}
		if c.Changed > 0 {
			return errors.New("an event came twice with different bytes")
		}
	}
	return nil
}

// orderBody is an order as a point-of-sale sends it, with every field that one has, about 450 bytes. Its external id
// is its idempotency key, too, as the spec suggests.
const (
	orderKey  = "POS-%016[2]d"
	orderBody = `{"externalStoreId":"branch-1","externalOrderId":"` + orderKey + `","orderedAt":"2026-11-21T12:30:00+03:00",` +
		`"recipient":{"name":"Ayşe Yılmaz","phone":"05321234567"},` +
		`"dropoff":{"text":"Caferağa Mah. Moda Cad. No:12 D:5","latitude":40.98713,"longitude":29.02761,"buildingNo":"12","doorNo":"5","floor":"2"},` +
		`"packageNote":"Kapıya bırakın","orderAmount":349.90,"payment":{"type":"Card","collectionAmount":349.90}}`
	orderRequest = "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: pos/4.2\r\nAccept: application/json\r\n" +
		"Authorization: Bearer %[1]s\r\nContent-Type: application/json\r\nX-Idempotency-Key: " + orderKey + "\r\nContent-Length: %[3]d\r\n\r\n" + orderBody

	orderBodyLength = len(orderBody) - len(orderKey) + len("POS-0123456789abcdef")
	ordersPerBatch  = 1_000_000_000_000
)

// newOrders is a series of requests for new orders, the vendors taking turns. No two series share an id.
func (s *system) newOrders() func(dst []byte, n int) []byte {
	first := s.batches.Add(1) * ordersPerBatch
	return func(dst []byte, n int) []byte {
		return fmt.Appendf(dst, orderRequest, s.vendors[n%len(s.vendors)].Bearer, first+int64(n), orderBodyLength)
	}
}

func (s *system) create(ctx context.Context, addrs []string, length time.Duration) (*harness.Answers, error) {
	return harness.ClosedLoop(ctx, harness.Load{Addrs: addrs, Connections: connections, Duration: length, Want: 201, Request: s.newOrders()})
}

// settle waits until the worker is idle, so that no measurement pays for the one before.
func (s *system) settle(ctx context.Context) error {
	const (
		interval = 250 * time.Millisecond
		quiet    = 0.1 // of a core
	)
	worker := harness.Process{Name: "worker", PID: s.Worker.PID()}
	before, err := harness.Measure(worker)
	if err != nil {
		return err
	}
	return harness.Await(ctx, "an idle worker", time.Minute, interval, func() (bool, error) {
		now, err := harness.Measure(worker)
		used := now.Since(before)
		before = now
		return used.Seconds > interval.Seconds()/2 && used.CPU[worker.Name] <= quiet*used.Seconds, err
	})
}

// usage is what has been used so far, by the names of costs.
type usage map[string]float64

func (s *system) usage(ctx context.Context) (usage, error) {
	u := usage{}
	for _, server := range s.redises {
		info, err := harness.RedisInfo(ctx, server)
		if err != nil {
			return nil, err
		}
		// The main thread alone is what one partition can have of a machine.
		u["redis_us"] += 1e6 * (info["used_cpu_sys_main_thread"] + info["used_cpu_user_main_thread"])
		u["redis_memory_bytes"] += info["used_memory"]
		u["redis_net_in_bytes"] += info["total_net_input_bytes"]
		u["redis_net_out_bytes"] += info["total_net_output_bytes"]
		u["aof_bytes"] += info["aof_current_size"]
		u["aof_base_bytes"] += info["aof_base_size"]
	}
	processes := []harness.Process{{Name: "worker", PID: s.Worker.PID()}, harness.Self("generator")}
	for _, g := range s.gateways {
		processes = append(processes, harness.Process{Name: "gateway", PID: g.PID()})
	}
	machine, err := harness.Measure(processes...)
	if err != nil {
		return nil, err
	}
	for name, seconds := range machine.CPU {
		u[name+"_us"] = 1e6 * seconds
	}
	u["busy_us"], u["idle_us"] = 1e6*machine.Busy, 1e6*machine.Idle
	// The flushes of all disks; an fsync is one. 0 on kernels that do not count them.
	fs, err := blockdevice.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	disks, err := fs.ProcDiskstats()
	for _, d := range disks {
		u["disk_flushes"] += float64(d.FlushRequestsCompleted)
	}
	return u, err
}

// during is what is used while something is done; memory and files may shrink. rewritten reports that Redis rewrote
// its file: what was appended to it is then not known.
func (s *system) during(ctx context.Context, do func() error) (used usage, rewritten bool, err error) {
	before, err := s.usage(ctx)
	if err != nil {
		return nil, false, err
	}
	if err := do(); err != nil {
		return nil, false, err
	}
	used, err = s.usage(ctx)
	for name := range used {
		used[name] -= before[name]
	}
	return used, used["aof_base_bytes"] != 0, err
}

// The two ways of an order that are accounted for.
const (
	costCreated   = "created."   // created and read by the worker, no more
	costDelivered = "delivered." // the whole way, creation and webhooks included
)

var costNames = []string{"redis_us", "gateway_us", "worker_us", "generator_us",
	"redis_memory_bytes", "redis_net_in_bytes", "redis_net_out_bytes", "disk_flushes"}

// account runs a measurement of orders and notes what one order costs each
// resource, by names such as "created.gateway_us": loadtest/SIZING.md computes with
// them. What the worker still has to do for them is waited for and counted.
func (b *bench) account(ctx context.Context, s *system, way string, measure func() (orders float64, err error)) error {
	var orders float64
	used, rewritten, err := s.during(ctx, func() (err error) {
		if orders, err = measure(); err != nil {
			return err
		}
		return s.settle(ctx)
	})
	if err != nil {
		return err
	}
	for _, name := range costNames {
		b.addCost(way+name, used[name]/orders)
	}
	if !rewritten {
		b.addCost(way+"aof_bytes", used["aof_bytes"]/orders)
	}
	return nil
}

func (b *bench) addCost(name string, v float64) { b.costs[name] = append(b.costs[name], v) }
