package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"
)

type object = map[string]any

var token, proto string

// call returns the data of an answer with the status want; anything else ends the
// walk.
func call(want int, method, path string, body object, headers ...string) object {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			log.Fatal(err)
		}
		content = bytes.NewReader(text)
		if os.Getenv("STREAM") != "" {
			content = io.MultiReader(content) // of which net/http knows no length
		}
	}
	req, err := http.NewRequest(method, os.Getenv("BASE_URL")+"/api/vendor/v1"+path, content)
	if err != nil {
		log.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	var answer struct{ Data object }
	raw, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	if err != nil || resp.StatusCode != want {
		log.Fatalf("%s %s answered %d: %s (%v)", method, path, resp.StatusCode, raw, err)
	}
	proto = resp.Proto
	return answer.Data
}

func order(id, note string) object {
	return object{
		"externalStoreId": "moda", "externalOrderId": id,
		"recipient":   object{"name": "Ayşe Kaya", "phone": "05321234567"},
		"dropoff":     object{"text": "Bahariye Caddesi No: 2, Kadıköy", "latitude": 40.988, "longitude": 29.03},
		"packageNote": note,
	}
}

// walkNetHTTP is the walk with Go's net/http. STREAM=1 sends bodies from a reader,
// without a length.
func walkNetHTTP() {
	log.SetFlags(0)
	token = call(200, "POST", "/token", object{"clientId": os.Getenv("CLIENT_ID"), "clientSecret": os.Getenv("CLIENT_SECRET")})["accessToken"].(string)

	store := object{
		"taxNumber": "1234567890", "name": "Moda Şubesi", "phone": "02165550011",
		"address": object{"text": "Moda Caddesi No: 1, Kadıköy", "latitude": 40.9816, "longitude": 29.0258},
	}
	state := call(200, "PUT", "/stores/moda", store)
	store["fleetId"] = state["availableFleets"].([]any)[0].(object)["fleetId"]
	for state["status"] != "Active" {
		state = call(200, "PUT", "/stores/moda", store)
		time.Sleep(300 * time.Millisecond)
	}

	delivered := call(201, "POST", "/orders", order("A-1", ""), "Idempotency-Key", "A-1")["orderId"].(string)
	if again := call(201, "POST", "/orders", order("A-1", ""), "X-Idempotency-Key", "A-1")["orderId"]; again != delivered {
		log.Fatalf("the order again is %s, not %s", again, delivered)
	}
	cancelled := call(201, "POST", "/orders", order("A-2", "SIM:HOLD=Assigned"), "Idempotency-Key", "A-2")["orderId"].(string)
	call(200, "POST", "/orders/"+cancelled+"/cancel", nil)

	time.Sleep(4 * time.Second)
	for call(200, "GET", "/orders/"+delivered, nil)["status"] != "Delivered" {
		time.Sleep(10 * time.Second)
	}
	fmt.Println(delivered, cancelled, proto)
}
