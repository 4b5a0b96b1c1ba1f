package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs/blockdevice"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

const (
	// vendorCount is how many accounts the orders come from, in turn: enough that
	// every partition, and every master of a cluster, gets its share.
	vendorCount = 48
	// connections is how many requests can be in flight at once, as in the
	// in-process measurements.
	connections = 64
)

// system is the programs, with vendors who order and receivers of their webhooks
// in this process.
type system struct {
	*stack.Stack
	gateways  []*stack.Program
	addrs     []string // host:port of each gateway's Vendor API
	fleetAddr string   // and of the first one's fleet API
	fleet     *client.Client
	redises   []*stack.Redis // every master
	vendors   []*stack.Vendor
	batches   atomic.Int64 // of orders

	receivers     []*receiver.Receiver
	stopReceivers func()
	seen          atomic.Pointer[func(receiver.Event)] // called with every distinct event; optional
	webhookBytes  atomic.Int64                         // of all requests, heads and bodies
}

// Stop ends the programs first: the worker finishes what it sends.
func (s *system) Stop() {
	s.Stack.Stop()
	if s.stopReceivers != nil {
		s.stopReceivers()
	}
}

// startSystem starts the programs and opens the vendors' stores. Orders move
// by requests to the fleet API only.
func (b *bench) startSystem(ctx context.Context, name, redisURL string) (_ *system, err error) {
	if err := stack.Build(ctx, b.file("bin")); err != nil {
		return nil, err
	}
	started, err := stack.Start(ctx, stack.Options{
		DataDir: b.file(name), BinDir: b.file("bin"), RedisURL: redisURL, Courier: "manual", Out: b.out,
	})
	if err != nil {
		return nil, err
	}
	s := &system{Stack: started, gateways: []*stack.Program{started.Gateway}}
	if s.Redis != nil {
		s.redises = []*stack.Redis{s.Redis}
	}
	if err := s.open(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *system) open(ctx context.Context) error {
	addr, err := hostOf(s.Demo.BaseURL)
	if err != nil {
		return err
	}
	s.addrs = []string{addr}
	if s.fleetAddr, err = hostOf(s.Demo.OpsURL); err != nil {
		return err
	}
	mux := http.NewServeMux()
	receivers, stop, err := receiver.Serve(mux)
	if err != nil {
		return err
	}
	s.stopReceivers = stop
	apis, err := s.Demo.Connect(ctx, client.New("", 8))
	if err != nil {
		return err
	}
	s.fleet = apis.Fleet
	limit := map[string]int{"requestsPerSecond": delivery.MaxFleetRequests} // nothing here reaches it
	if err := apis.Admin.Call(ctx, http.MethodPatch, "/fleets/"+apis.FleetID, limit, nil); err != nil {
		return err
	}
	s.vendors, err = apis.OpenVendors(ctx, vendorCount, func(i int) stack.VendorOptions {
		return stack.VendorOptions{Name: fmt.Sprintf("Vendor %d", i), Limits: stack.Unlimited, WebhookURL: receivers + "/" + strconv.Itoa(i)}
	})
	if err != nil {
		return err
	}
	for i, v := range s.vendors {
		r, err := receiver.New(receiver.Options{Secrets: []string{v.WebhookSecret}, Seen: s.saw})
		if err != nil {
			return err
		}
		s.receivers = append(s.receivers, r)
		mux.HandleFunc("/"+strconv.Itoa(i), func(w http.ResponseWriter, req *http.Request) {
			s.webhookBytes.Add(requestBytes(req))
			r.ServeHTTP(w, req)
		})
	}
	return nil
}

func (s *system) saw(e receiver.Event, duplicate bool) {
	if seen := s.seen.Load(); seen != nil && !duplicate {
		(*seen)(e)
	}
}

func hostOf(origin string) (string, error) {
	u, err := url.Parse(origin)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}

// requestBytes is the length of a request as it came over the wire.
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

// bound ends the context when one of the programs dies.
func (s *system) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		if err := s.Wait(ctx); err != nil {
			cancel(err)
		}
	}()
	return ctx, func() { cancel(nil) }
}

// orderBody is an order as a point-of-sale sends it, with every field that one
// has, about 450 bytes. Its external id is its idempotency key, too, as the spec
// suggests.
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

// newOrders is a series of requests for new orders, the vendors taking turns. No
// two series share an id.
func (s *system) newOrders() func(dst []byte, n int) []byte {
	first := s.batches.Add(1) * ordersPerBatch
	return func(dst []byte, n int) []byte {
		return fmt.Appendf(dst, orderRequest, s.vendors[n%len(s.vendors)].Bearer, first+int64(n), orderBodyLength)
	}
}

// settle waits until the worker is idle, so that no measurement pays for the one
// before.
func (s *system) settle(ctx context.Context) error {
	const (
		look  = 250 * time.Millisecond
		quiet = 0.1 // of a core
	)
	worker := harness.Process{Name: "worker", PID: s.Worker.PID()}
	before, err := harness.Measure(worker)
	if err != nil {
		return err
	}
	return await(ctx, "an idle worker", time.Minute, look, func() (bool, error) {
		now, err := harness.Measure(worker)
		used := now.Since(before)
		before = now
		return used.Seconds > look.Seconds()/2 && used.CPU[worker.Name] <= quiet*used.Seconds, err
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
	u["disk_flushes"], err = diskFlushes()
	return u, err
}

// diskFlushes counts the flushes of all disks since the machine's start; an
// fsync is one. 0 on kernels that do not count them.
func diskFlushes() (total float64, err error) {
	fs, err := blockdevice.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	disks, err := fs.ProcDiskstats()
	for _, d := range disks {
		total += float64(d.FlushRequestsCompleted)
	}
	return total, err
}

// since is what was used between an earlier look and this one; memory and files
// may have shrunk.
func (u usage) since(before usage) usage {
	used := usage{}
	for name, v := range u {
		used[name] = v - before[name]
	}
	return used
}

// costs are what one order costs each resource, round by round, by names such as
// "created.gateway_us". loadtest/SIZING.md computes with them.
type costs map[string][]float64

// The two ways of an order that are accounted for.
const (
	costCreated   = "created."   // created and read by the worker, no more
	costDelivered = "delivered." // the whole way, creation and webhooks included
)

// costNames are the resources of usage that an order pays for.
var costNames = []string{"redis_us", "gateway_us", "worker_us", "generator_us",
	"redis_memory_bytes", "redis_net_in_bytes", "redis_net_out_bytes", "disk_flushes"}

// account runs a measurement of orders and divides what was used by their
// number. What the worker still has to do for them is waited for and counted.
func (s *system) account(ctx context.Context, way string, c costs, measure func() (orders float64, err error)) error {
	before, err := s.usage(ctx)
	if err != nil {
		return err
	}
	orders, err := measure()
	if err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	after, err := s.usage(ctx)
	if err != nil {
		return err
	}
	c.note(way, after.since(before), after["aof_base_bytes"] != before["aof_base_bytes"], orders)
	return nil
}

// note adds one round. What was appended to a file is not known when it was
// rewritten meanwhile.
func (c costs) note(way string, used usage, rewritten bool, orders float64) {
	for _, name := range costNames {
		c.add(way+name, used[name]/orders)
	}
	if !rewritten {
		c.add(way+"aof_bytes", used["aof_bytes"]/orders)
	}
}

func (c costs) add(name string, figure float64) { c[name] = append(c[name], figure) }

func (c costs) spreads() map[string]*harness.Spread {
	all := map[string]*harness.Spread{}
	for name, rounds := range c {
		all[name] = harness.SpreadOf(rounds)
	}
	return all
}
