package day

import (
	"slices"
	"testing"
)

func TestNewPlan_HasEveryKindAndIsRepeatable(t *testing.T) {
	p, err := newPlan(300)
	if err != nil {
		t.Fatal(err)
	}
	same, err := newPlan(300)
	if err != nil {
		t.Fatal(err)
	}

	codes, ends := map[string]int{}, map[string]int{}
	lateDeliveries := 0
	for i, r := range p.requests {
		if r.original == nil {
			codes[r.want.Code]++
			ends[r.want.End]++
		} else if slices.Index(p.requests, r.original) >= i {
			t.Errorf("request %d repeats a later one", i)
		}

		if r.want.LateDelivery {
			lateDeliveries++
		}

		if string(r.body) != string(same.requests[i].body) {
			t.Fatalf("request %d differs between two plans:\n%s\n%s", i, r.body, same.requests[i].body)
		}
	}

	if len(p.requests) != 315 || len(codes) != 12 || lateDeliveries != 3 {
		t.Errorf("%d requests, codes %v, %d late deliveries", len(p.requests), codes, lateDeliveries)
	}
	if ends[""] != 24 || ends["Failed"] != 24 || ends["Cancelled"] != 24 || ends["Delivered"] != 228 {
		t.Errorf("ends %v", ends)
	}
}
