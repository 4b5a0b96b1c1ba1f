package validate

import (
	"testing"

	"vendorapi/internal/testenv/testserver"
)

func TestMain(m *testing.M) {
	oneSearch, allSearches = testserver.Timeout, testserver.Timeout
	testserver.Main(m)
}
