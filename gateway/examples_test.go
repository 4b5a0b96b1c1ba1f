package main

import (
	"strings"
	"testing"
)

// Examples of answers have no member that is not documented. Documents allow more, since
// answers may get more.
func TestExamples_HaveNothingThatIsNotDocumented(t *testing.T) {
	for _, api := range []string{"vendor", "fleet", "admin"} {
		d := document(api)
		if len(d.examples) < 20 {
			t.Errorf("%s.yaml has %d examples", api, len(d.examples))
		}

		for name, example := range d.examples {
			operation, rest, _ := strings.Cut(name, " ")
			status, _, _ := strings.Cut(rest, " ")
			if err := d.answers.check(operation+" "+status+"/properties/body", example); err != nil {
				t.Errorf("%s.yaml, %s: %v", api, name, err)
			}
		}
	}
}

// The whole package's tests have to meet the message of every example of a refusal
// (TestMain); these are those that no other test has a reason to meet.
func TestExamples_OfRefusalsAreSent(t *testing.T) {
	e := newStoreEnv(t, "")
	const commaForPoint = `{"latitude": 40,98, "longitude": 29,03}`
	want(t, e.fleet(e.courier, "PUT", "/availability", commaForPoint), 400, "MALFORMED_REQUEST")
	want(t, e.tryAdmin("POST", "/accounts", commaForPoint), 400, "MALFORMED_REQUEST")

	asText := map[string]string{"Content-Type": "text/plain"}
	for _, r := range []request{
		{method: "PUT", url: e.private + "/api/fleet/v1/availability", token: e.courier.token, body: "{}", header: asText},
		{method: "POST", url: e.private + "/api/admin/v1/accounts", token: adminKey, body: "{}", header: asText},
	} {
		want(t, e.send(r), 415, "UNSUPPORTED_MEDIA_TYPE")
	}
}
