package strictjson

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bytedance/sonic/ast"

	"vendorapi/internal/delivery"
)

// orderBody is an order as a point-of-sale sends it, about 450 bytes.
const orderBody = `{"externalStoreId":"kadikoy-1","externalOrderId":"POS-2026-000123456","orderedAt":"2026-11-21T12:30:00+03:00",` +
	`"recipient":{"name":"Ayşe Yılmaz","phone":"05321234567"},` +
	`"dropoff":{"text":"Caferağa Mah. Moda Cad. No:12 D:5","latitude":40.98713,"longitude":29.02761,"buildingNo":"12","doorNo":"5","floor":"2"},` +
	`"packageNote":"Kapıya bırakın","orderAmount":349.90,"payment":{"type":"Card","collectionAmount":349.90}}`

// BenchmarkReader reads every field of an order, with all the checks.
func BenchmarkReader(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(orderBody)))
	for b.Loop() {
		r := New(orderBody)
		var text delivery.Text
		var number delivery.Number
		member := func(key string) {
			switch key {
			case "latitude", "longitude", "collectionAmount", "orderAmount":
				r.Number(key, &number)
			default:
				r.Text(key, &text)
			}
		}
		r.Root(func(key string) {
			switch key {
			case "recipient", "dropoff", "payment":
				r.Object(key, member)
			default:
				member(key)
			}
		})
		if r.End() != nil || len(r.Wrong) != 0 {
			b.Fatal(r.End(), r.Wrong)
		}
	}
}

// BenchmarkSonicPreorder only walks over the order with sonic's visitor: no
// check of UTF-8, control characters, repeated keys or trailing data, nothing
// stored.
func BenchmarkSonicPreorder(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(orderBody)))
	for b.Loop() {
		if err := ast.Preorder(orderBody, walk{}, &ast.VisitorOptions{OnlyNumber: true}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncodingJSON decodes into a map, for scale.
func BenchmarkEncodingJSON(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var out map[string]any
		if err := json.NewDecoder(strings.NewReader(orderBody)).Decode(&out); err != nil {
			b.Fatal(err)
		}
	}
}

type walk struct{}

func (walk) OnNull() error                        { return nil }
func (walk) OnBool(bool) error                    { return nil }
func (walk) OnString(string) error                { return nil }
func (walk) OnInt64(int64, json.Number) error     { return nil }
func (walk) OnFloat64(float64, json.Number) error { return nil }
func (walk) OnObjectBegin(int) error              { return nil }
func (walk) OnObjectKey(string) error             { return nil }
func (walk) OnObjectEnd() error                   { return nil }
func (walk) OnArrayBegin(int) error               { return nil }
func (walk) OnArrayEnd() error                    { return nil }
