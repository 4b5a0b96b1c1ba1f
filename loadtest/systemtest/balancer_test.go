package systemtest

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
)

// What the balancer answers by itself is an answer of the contract: an envelope with a code
// that has this status. It does not know whether a request was carried out, and does not say
// that it was not.
func TestBalancer_ErrorFilesAreEnvelopes(t *testing.T) {
	t.Parallel()

	config := readFile(t, "configs/haproxy/haproxy.cfg")
	named := regexp.MustCompile(`errorfile \d+ /usr/local/etc/haproxy/errors/(\S+)`).FindAllStringSubmatch(config, -1)
	var used []string
	for _, match := range named {
		used = append(used, match[1])
	}

	slices.Sort(used)

	var files []string
	entries, err := os.ReadDir(moduleFile(t, "configs/haproxy/errors"))
	must(t, err)
	for _, entry := range entries {
		files = append(files, entry.Name())
	}

	used = slices.Compact(used)
	if !slices.Equal(used, files) {
		t.Errorf("haproxy.cfg names %v, there are %v", used, files)
	}

	for _, name := range files {
		text := readFile(t, filepath.Join("configs/haproxy/errors", name))
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)

		var envelope struct {
			Success *bool
			Message string
			Data    struct {
				ErrorCode         delivery.Code
				RetryAfterSeconds int
			}
		}

		must(t, json.Unmarshal(body, &envelope))
		isRefusal := envelope.Success != nil && !*envelope.Success && envelope.Message != ""
		if !isRefusal || envelope.Data.ErrorCode.HTTPStatus() != resp.StatusCode || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s %v %s", name, resp.Status, resp.Header, body)
		}

		wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		if wait != envelope.Data.RetryAfterSeconds || strings.Contains(envelope.Message, "is safe") {
			t.Errorf("%s: Retry-After %d and %s", name, wait, body)
		}
	}
}
