package config

import "testing"

func TestCheckAddr_TakesWhatCanBeListenedOn(t *testing.T) {
	t.Parallel()

	for addr, fine := range map[string]bool{
		"127.0.0.1:8080": true, ":8080": true, "localhost:0": true, "[::1]:65535": true, "0.0.0.0:80": true,
		"": false, "nonsense": false, ":99999": false, "127.0.0.1:": false, "127.0.0.1:http": false, "::1:80": false, "a:-1": false, ":+80": false,
	} {
		if err := CheckAddr(addr); (err == nil) != fine {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()

	for addr, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", ":80": "127.0.0.1:80", "0.0.0.0:80": "127.0.0.1:80",
		"[::]:80": "127.0.0.1:80", "[::1]:80": "[::1]:80", "host:80": "host:80", "nonsense": "nonsense",
	} {
		if got := Reachable(addr); got != want {
			t.Errorf("Reachable(%q) = %q, want %q", addr, got, want)
		}
	}
}
