//go:build long

package samples

import (
	"strings"
	"testing"
	"time"
)

// As k6 v1.8.1 writes them, tags in any order, with metrics that do not matter
// here in between.
const written = `metric_name,timestamp,metric_value,error_code,expected_response,method,name,scenario,status,extra_tags,metadata
stores_registered,1795284932713692,1.000000,,,,,,,account=1,store=loadtest-1
http_reqs,1795284932714757,1.000000,,true,POST,POST /orders,a,201,account=1,
http_req_duration,1795284932714757,2.500000,,true,POST,POST /orders,a,201,account=1,
http_req_waiting,1795284932714757,0.204885,,true,POST,POST /orders,a,201,account=1,
orders_accepted,1795284932715006,1.000000,,,,,a,,account=1,order=o-1&end=Delivered
http_req_duration,1795284934000000,10.000000,1429,true,POST,POST /orders,a,429,step=400/s&account=2,
http_req_duration,1795284935000000,1.000000,,true,GET,GET /orders/{id},a,200,account=2,
http_req_duration,1795284935100000,0.000000,1050,false,GET,GET /orders/{id},a,0,account=2,
dropped_iterations,1795284935200000,2.000000,,,,,a,,,
`

func TestReadCSV(t *testing.T) {
	t.Parallel()
	run, err := ReadCSV(strings.NewReader(written))
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Requests) != 4 || len(run.Orders) != 1 || run.Stores["1"] != 1 || len(run.Dropped) != 2 {
		t.Fatalf("%+v", run)
	}
	first := Request{Endpoint: "POST /orders", Account: "1", Status: 201,
		Sent: time.UnixMicro(1795284932712257), Answered: time.UnixMicro(1795284932714757)}
	if run.Requests[0] != first || first.Took() != 2500*time.Microsecond {
		t.Errorf("%+v", run.Requests[0])
	}
	if r := run.Requests[1]; r.Step != "400/s" || r.Account != "2" || r.Status != 429 {
		t.Errorf("%+v", r)
	}
	if o := run.Orders[0]; o != (Order{ID: "o-1", Account: "1", End: "Delivered"}) {
		t.Errorf("%+v", o)
	}
}

func TestReadCSV_RefusesWhatK6DoesNotWrite(t *testing.T) {
	t.Parallel()
	head, _, _ := strings.Cut(written, "\n")
	for name, text := range map[string]string{
		"nothing":            "",
		"other columns":      "metric_name,timestamp\n",
		"no time":            head + "\nhttp_req_duration,soon,1,,,,,,200,,\n",
		"no value":           head + "\nhttp_req_duration,1795284932714757,long,,,,,,200,,\n",
		"no status":          head + "\nhttp_req_duration,1795284932714757,1,,,,,,,,\n",
		"an order of no one": head + "\norders_accepted,1795284932714757,1,,,,,,,account=1,\n",
		"half a line":        head + "\nhttp_req_duration,1795284932714757\n",
	} {
		if run, err := ReadCSV(strings.NewReader(text)); err == nil {
			t.Errorf("%s: %+v", name, run)
		}
	}
}
