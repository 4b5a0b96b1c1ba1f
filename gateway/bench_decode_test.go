package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bytedance/sonic"

	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
)

// structOrder is an order's body for the decoders that need a struct. Amounts
// and coordinates stay text, as in delivery.OrderRequest. Plain values are the
// fastest that such a decoder can do; they do not tell what is absent.
type structOrder struct {
	ExternalStoreID string `json:"externalStoreId"`
	ExternalOrderID string `json:"externalOrderId"`
	OrderedAt       string `json:"orderedAt"`
	ReadyAt         string `json:"readyAt"`
	Recipient       struct {
		Name  string `json:"name"`
		Phone string `json:"phone"`
	} `json:"recipient"`
	Dropoff struct {
		Text       string      `json:"text"`
		Latitude   json.Number `json:"latitude"`
		Longitude  json.Number `json:"longitude"`
		BuildingNo string      `json:"buildingNo"`
		DoorNo     string      `json:"doorNo"`
		Floor      string      `json:"floor"`
		Note       string      `json:"note"`
	} `json:"dropoff"`
	PackageNote string      `json:"packageNote"`
	OrderAmount json.Number `json:"orderAmount"`
	Payment     struct {
		Type             string      `json:"type"`
		CollectionAmount json.Number `json:"collectionAmount"`
	} `json:"payment"`
}

// decodedBodies are what point-of-sale systems send: the load's order, one with
// the required fields only, one whose Turkish letters are escaped and whose
// layout is for people, and one with long notes and fields that we do not know.
var decodedBodies = []struct{ name, body string }{
	{"typical", loadBody},
	{"small", `{"externalStoreId":"s1","externalOrderId":"1001","recipient":{"name":"Ali Can","phone":"05321234567"},` +
		`"dropoff":{"text":"Moda Caddesi No: 12","latitude":40.98,"longitude":29.02}}`},
	{"escaped", strings.NewReplacer("ş", `\u015f`, "ı", `\u0131`, "ğ", `\u011f`, ",", ",\n  ", ":", ": ").Replace(loadBody)},
	{"long", strings.Replace(loadBody, `"Kapıya bırakın"`, `"`+strings.Repeat("Zili çalmayın, kapıya bırakın. ", 15)+
		`","items":[`+strings.Repeat(`{"name":"Lahmacun","count":2,"options":["acılı",null,true]},`, 20)+`{}]`, 1)},
}

// BenchmarkDecode reads a body of an order from the bytes as they came off the
// connection: the gateway's reader, sonic and encoding/json. Only the first
// refuses what the spec refuses (text that is not UTF-8, a key that occurs
// twice) and tells a wrong type from a syntax error.
func BenchmarkDecode(b *testing.B) {
	var o delivery.OrderRequest // kept from order to order, as the gateway does
	fields := strictjson.Bind(&o)
	decoders := []struct {
		name   string
		decode func([]byte) error
	}{
		{"strictjson", func(body []byte) error {
			o = delivery.OrderRequest{}
			_, err := decode(string(body), fields)
			return err
		}},
		{"sonic", func(body []byte) error {
			var o structOrder
			return sonic.ConfigStd.Unmarshal(body, &o)
		}},
		{"encodingjson", func(body []byte) error {
			var o structOrder
			return json.Unmarshal(body, &o)
		}},
	}

	for _, body := range decodedBodies {
		for _, d := range decoders {
			b.Run(body.name+"/"+d.name, func(b *testing.B) {
				raw := []byte(body.body)
				b.ReportAllocs()
				b.SetBytes(int64(len(raw)))
				for b.Loop() {
					if err := d.decode(raw); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
