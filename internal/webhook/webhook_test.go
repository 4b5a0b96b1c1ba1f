package webhook

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

//rule:body-envelope/eventId body-envelope/event body-envelope/occurredAt body-envelope/data
func TestAppendEnvelope_WritesTheSpecsObject(t *testing.T) {
	got := string(AppendEnvelope([]byte("x"), "evt_1", "store.activated", "2026-11-21T12:30:00.000+03:00", appendText(`{"a":[1]}`)))
	want := `x{"eventId":"evt_1","event":"store.activated","occurredAt":"2026-11-21T12:30:00.000+03:00","data":{"a":[1]}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAppendEnvelope_IsJSONForAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anything := rapid.OneOf(rapid.String(), rapid.StringMatching(`[\x00-\x7f]{0,8}`), rapid.SampledFrom([]string{`\`, `"`, "\n", "\x00", "ş"}))
		id, event, at := anything.Draw(t, "id"), anything.Draw(t, "event"), anything.Draw(t, "at")
		var got struct {
			EventID    string `json:"eventId"`
			Event      string `json:"event"`
			OccurredAt string `json:"occurredAt"`
			Data       int    `json:"data"`
		}
		body := AppendEnvelope(nil, id, event, at, appendText("7"))
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if got.EventID != id || got.Event != event || got.OccurredAt != at || got.Data != 7 {
			t.Fatalf("%+v does not hold %q %q %q", got, id, event, at)
		}
	})
}

func BenchmarkAppendEnvelope(b *testing.B) {
	data := appendText(strings.Repeat("7", 400))
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendEnvelope(buf[:0], "evt_0123456789abcdef", "delivery.status_changed", "2026-11-21T12:30:00.000+03:00", data)
	}
}

func appendText(text string) func([]byte) []byte {
	return func(dst []byte) []byte { return append(dst, text...) }
}
