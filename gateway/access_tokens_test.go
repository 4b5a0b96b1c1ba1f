package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash"
	"strings"
	"testing"
	"time"

	"vendorapi/gateway/token"
	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
)

// forged is a token with whatever header and claims, signed with a key.
func forged(header, claims string, key []byte, h func() hash.Hash) string {
	encode := base64.RawURLEncoding.EncodeToString
	input := encode([]byte(header)) + "." + encode([]byte(claims))
	mac := hmac.New(h, key)
	mac.Write([]byte(input))
	return input + "." + encode(mac.Sum(nil))
}

// issued is a token as an authority with these keys issues it.
func issued(t *testing.T, keys config.Keyring, api token.API, environment string, subject [16]byte, at time.Time) string {
	t.Helper()
	a, err := token.NewAuthority(keys, api, environment)
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.Issue(subject, at)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// onlyBy is a ring of one key.
func onlyBy(kid string, c byte) config.Keyring {
	return config.Keyring{Current: kid, Keys: map[string][]byte{kid: key32(c)}}
}

// twoAPIs is a gateway with a party on either side, and for both what they ask.
type twoAPIs struct {
	*world
	account, courier party
	accountID        delivery.AccountID
	fleetID          delivery.FleetID
}

func newTwoAPIs(t *testing.T) *twoAPIs {
	w := newWorld(t)
	s := &twoAPIs{world: w, account: w.newAccount(""), courier: w.newFleet("Kurye", istanbul)}
	var err error
	if s.accountID, err = delivery.ParseAccountID(s.account.id); err != nil {
		t.Fatal(err)
	}
	if s.fleetID, err = delivery.ParseFleetID(s.courier.id); err != nil {
		t.Fatal(err)
	}
	return s
}

// ask sends a token to the Vendor API and to the fleet API.
func (s *twoAPIs) ask(api token.API, text string) answer {
	s.Helper()
	if api == token.Fleet {
		return s.get(s.private+"/api/fleet/v1/jobs", text)
	}
	return s.get(s.vendor+"/api/vendor/v1/orders/7c9e6679-7425-40de-944b-e07fc1f90ae7", text)
}

// What is no token of this API, environment and hour is answered 401 with the
// spec's codes by both APIs, every one of them with the same bytes.
func TestAccess_Tokens(t *testing.T) {
	s := newTwoAPIs(t)
	for _, api := range []token.API{token.Vendor, token.Fleet} {
		t.Run(string(api), func(t *testing.T) { s.tokensOf(t, api) })
	}
}

func (s *twoAPIs) tokensOf(t *testing.T, api token.API) {
	subject, good, theirs := [16]byte(s.accountID), s.account.token, s.courier.token
	if api == token.Fleet {
		subject, good, theirs = s.fleetID, s.courier.token, s.account.token
	}
	now, keys := time.Now(), testSecrets().TokenKeys
	if a := s.ask(api, good); a.status == 401 || a.status == 403 {
		t.Fatalf("a good token: %d %s", a.status, a.body)
	}
	parts := strings.Split(good, ".")
	sign := func(alg string, key []byte, h func() hash.Hash) string {
		claims := fmt.Sprintf(`{"iss":"vendorapi","sub":%q,"aud":["%s:sandbox"],"iat":%d,"exp":%d}`,
			delivery.AccountID(subject), api, now.Unix(), now.Add(time.Hour).Unix())
		return forged(`{"alg":"`+alg+`","kid":"t1","typ":"JWT"}`, claims, key, h)
	}
	if a := s.ask(api, sign("HS256", key32('t'), sha256.New)); a.status == 401 {
		t.Fatalf("the forged tokens of this test lack more than they should: %s", a.body)
	}
	const invalid, expired = "TOKEN_INVALID", "TOKEN_EXPIRED"
	bodies := map[string]string{}
	for name, c := range map[string]struct{ text, code string }{
		"expired by a second":             {issued(t, keys, api, sandbox, subject, now.Add(-time.Hour-time.Second)), expired},
		"expired long ago":                {issued(t, keys, api, sandbox, subject, now.AddDate(-1, 0, 0)), expired},
		"expired, by another key":         {issued(t, onlyBy("t1", 'x'), api, sandbox, subject, now.Add(-2*time.Hour)), invalid},
		"another key":                     {issued(t, onlyBy("t1", 'x'), api, sandbox, subject, now), invalid},
		"another key id":                  {issued(t, onlyBy("t2", 't'), api, sandbox, subject, now), invalid},
		"of production":                   {issued(t, keys, api, production, subject, now), invalid},
		"of the other API":                {theirs, invalid},
		"of a third API":                  {issued(t, keys, "admin", sandbox, subject, now), invalid},
		"alg none, unsigned":              {strings.Join(strings.Split(sign("none", nil, sha256.New), ".")[:2], ".") + ".", invalid},
		"alg none, signed":                {sign("none", key32('t'), sha256.New), invalid},
		"alg HS512 with our key":          {sign("HS512", key32('t'), sha512.New), invalid},
		"alg RS256 with our key":          {sign("RS256", key32('t'), sha256.New), invalid},
		"signed with the key's id":        {sign("HS256", []byte("t1"), sha256.New), invalid},
		"signed with the admin key":       {sign("HS256", []byte(adminKey), sha256.New), invalid},
		"the tracking links' key":         {sign("HS256", key32('k'), sha256.New), invalid},
		"the webhook secrets' key":        {sign("HS256", key32('w'), sha256.New), invalid},
		"no signature":                    {parts[0] + "." + parts[1] + ".", invalid},
		"a fourth part":                   {good + ".x", invalid},
		"the claims of the other API's":   {parts[0] + "." + strings.Split(theirs, ".")[1] + "." + parts[2], invalid},
		"a client id":                     {s.account.clientID, invalid},
		"a client secret":                 {s.account.secret, invalid},
		"the admin key":                   {adminKey, invalid},
		"nine kilobytes":                  {strings.Repeat("A", 9<<10), invalid},
		"nine kilobytes behind a token":   {good + "." + strings.Repeat("A", 9<<10), invalid},
		"a million dots would not fit":    {strings.Repeat(".", 9<<10), invalid},
		"a session's cookie of the panel": {strings.Repeat("s", 43), invalid},
	} {
		a := s.ask(api, c.text)
		if a.status != 401 || a.code != c.code || a.header.Get("WWW-Authenticate") != "Bearer" || a.header.Get("X-RateLimit-Limit") != "" {
			t.Errorf("%s: %d %s %v", name, a.status, a.body, a.header)
		}
		if before, seen := bodies[a.code]; seen && before != a.body {
			t.Errorf("%s is answered %s, others %s", name, a.body, before)
		}
		bodies[a.code] = a.body
	}
}

// The header Authorization is the only place for a token, and carries one.
func TestAccess_AuthorizationHeader(t *testing.T) {
	s := newTwoAPIs(t)
	good := s.account.token
	const path = "/api/vendor/v1/webhook"
	for name, c := range map[string]struct {
		target, headers string
		status          int
		code            string
	}{
		"as it should be":           {path, "Authorization: Bearer " + good, 404, "WEBHOOK_NOT_CONFIGURED"},
		"scheme in small letters":   {path, "authorization: bearer " + good, 404, "WEBHOOK_NOT_CONFIGURED"},
		"scheme in capitals":        {path, "AUTHORIZATION: BEARER " + good, 404, "WEBHOOK_NOT_CONFIGURED"},
		"two blanks":                {path, "Authorization: Bearer  " + good, 404, "WEBHOOK_NOT_CONFIGURED"},
		"twice the same":            {path, "Authorization: Bearer " + good + "\r\nAuthorization: Bearer " + good, 401, "TOKEN_INVALID"},
		"a bad one first":           {path, "Authorization: Bearer x\r\nAuthorization: Bearer " + good, 401, "TOKEN_INVALID"},
		"a bad one last":            {path, "Authorization: Bearer " + good + "\r\nauthorization: Bearer x", 401, "TOKEN_INVALID"},
		"two in one":                {path, "Authorization: Bearer " + good + ", Bearer " + good, 401, "TOKEN_INVALID"},
		"none":                      {path, "Accept: */*", 401, "TOKEN_INVALID"},
		"empty":                     {path, "Authorization:", 401, "TOKEN_INVALID"},
		"scheme only":               {path, "Authorization: Bearer", 401, "TOKEN_INVALID"},
		"scheme and blank":          {path, "Authorization: Bearer ", 401, "TOKEN_INVALID"},
		"no scheme":                 {path, "Authorization: " + good, 401, "TOKEN_INVALID"},
		"Basic":                     {path, "Authorization: Basic " + good, 401, "TOKEN_INVALID"},
		"scheme and tab":            {path, "Authorization: Bearer\t" + good, 401, "TOKEN_INVALID"},
		"in the query":              {path + "?access_token=" + good, "Accept: */*", 401, "TOKEN_INVALID"},
		"in a cookie":               {path, "Cookie: access_token=" + good, 401, "TOKEN_INVALID"},
		"in another header":         {path, "X-Authorization: Bearer " + good, 401, "TOKEN_INVALID"},
		"in Proxy-Authorization":    {path, "Proxy-Authorization: Bearer " + good, 401, "TOKEN_INVALID"},
		"as a user in the target":   {"http://" + good + "@x" + path, "Accept: */*", 401, "TOKEN_INVALID"},
		"twenty kilobytes of token": {path, "Authorization: Bearer " + strings.Repeat("A", 20<<10), 431, "REQUEST_HEADER_TOO_LARGE"},
	} {
		status, header, body := s.raw("GET " + c.target + " HTTP/1.1\r\nHost: x\r\n" + c.headers + "\r\n\r\n")
		if a := readAnswer(parseHeader(status, header), []byte(body)); a.status != c.status || a.code != c.code {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

// A good token of an account that is suspended, or is not there, opens nothing;
// a rotated secret leaves tokens as they are, for the contract gives them an hour.
func TestAccess_TokensOutliveNeitherSuspensionNorAccount(t *testing.T) {
	s := newTwoAPIs(t)
	keys := testSecrets().TokenKeys
	ghost := issued(t, keys, token.Vendor, sandbox, delivery.NewAccountID(), time.Now())
	second := s.newAccount("")
	s.admin("POST", "/accounts/"+second.id+"/credentials", "")
	s.admin("PATCH", "/accounts/"+s.account.id, `{"suspended":true}`)
	for i := range s.g.vendorRoutes {
		r := &s.g.vendorRoutes[i]
		if r.access != vendorOnly {
			continue
		}
		ask := func(token string) answer {
			return s.send(request{method: r.method, url: s.vendor + strings.ReplaceAll(r.pattern, "{}", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
				token: token, body: map[bool]string{true: "{}"}[r.body != noBody]})
		}
		if a := ask(s.account.token); a.status != 403 || a.code != "ACCOUNT_SUSPENDED" {
			t.Errorf("suspended, %s: %d %s", r.name, a.status, a.body)
		}
		if a := ask(ghost); a.status != 401 || a.code != "TOKEN_INVALID" || a.header.Get("X-RateLimit-Limit") != "" {
			t.Errorf("no such account, %s: %d %s", r.name, a.status, a.body)
		}
		if a := ask(second.token); a.status == 401 || a.status == 403 {
			t.Errorf("issued before the secret was rotated, %s: %d %s", r.name, a.status, a.body)
		}
	}
	if a := s.login("vendor", s.account.clientID, s.account.secret); a.status != 403 || a.code != "ACCOUNT_SUSPENDED" {
		t.Errorf("a suspended account's credentials: %d %s", a.status, a.body)
	}
	if a := s.login("vendor", s.account.clientID, "wrong"); a.status != 401 || a.code != "INVALID_CREDENTIALS" {
		t.Errorf("a suspended account's wrong credentials tell that it is suspended: %d %s", a.status, a.body)
	}
}

// Replicas take a new key in front, then drop the old one an hour later; in
// between tokens of both open.
func TestAccess_TokenKeysRotateWithoutARefusal(t *testing.T) {
	before, during, after := testSecrets(), testSecrets(), testSecrets()
	during.TokenKeys = config.Keyring{Current: "t2", Keys: map[string][]byte{"t2": key32('u'), "t1": key32('t')}}
	after.TokenKeys = onlyBy("t2", 'u')
	s := testSettings(t)
	s.Redis.URL = startRedis(t).URL
	var worlds [3]*world
	for i, keys := range []secrets{before, during, after} {
		worlds[i] = startGateway(t, s, keys)
		worlds[i].awaitReady()
	}
	account := worlds[0].newAccount("")
	later := worlds[1].login("vendor", account.clientID, account.secret).data["accessToken"].(string)
	for i, want := range [3][2]int{{404, 401}, {404, 404}, {401, 404}} {
		for k, text := range [2]string{account.token, later} {
			if a := worlds[i].get(worlds[i].vendor+"/api/vendor/v1/webhook", text); a.status != want[k] {
				t.Errorf("replica %d, token %d: %d %s", i+1, k+1, a.status, a.body)
			}
		}
	}
}
