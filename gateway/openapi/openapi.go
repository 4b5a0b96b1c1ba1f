// Package openapi holds the contracts of the three APIs as OpenAPI 3.1 documents,
// written by hand, the table of error codes, which is derived from them, and the page
// that leads an integrator to the first delivery. Tools that read no YAML or no 3.1 get
// the documents as JSON and as JSON30 makes of them.
// The gateway serves them, and its tests check every request and answer by them.
package openapi

import _ "embed"

// The documents, one for each API, each complete in itself.
var (
	//go:embed vendor.yaml
	Vendor []byte
	//go:embed fleet.yaml
	Fleet []byte
	//go:embed admin.yaml
	Admin []byte
)

// The table of error codes, and the page for integrators, in which {base_url} stands
// for the gateway's origin.
var (
	//go:embed ERRORS.md
	Errors string
	//go:embed TEN_MINUTES.md
	TenMinutes string
)
