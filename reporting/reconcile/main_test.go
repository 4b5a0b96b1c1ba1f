package reconcile

import (
	"testing"

	"vendorapi/reporting/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }
