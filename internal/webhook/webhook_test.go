package webhook

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

//rule:body-envelope/eventId body-envelope/event body-envelope/occurredAt body-envelope/data
func TestAppendEnvelope_WritesTheSpecsObject(t *testing.T) {
	got := string(AppendEnvelope([]byte("x"), "evt_1", "store.activated", "2026-11-21T12:30:00.000+03:00", appendText(`{"a":[1]}`)))
	want := `x{"eventId":"evt_1","event":"store.activated","occurredAt":"2026-11-21T12:30:00.000+03:00","data":{"a":[1]}}`
	check(t, got == want, "got  %s\nwant %s", got, want)
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
		err := json.Unmarshal(body, &got)
		require(t, err == nil, "%s: %v", body, err)
		require(t, got.EventID == id && got.Event == event && got.OccurredAt == at && got.Data == 7, "%+v does not hold %q %q %q", got, id, event, at)
	})
}

func appendText(text string) func([]byte) []byte {
	return func(dst []byte) []byte { return append(dst, text...) }
}
