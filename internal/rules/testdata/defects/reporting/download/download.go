package download

import (
	"net/http"
	"time"

	"vendorapi/internal/rules/broken"
)

func parse(r *http.Request, names Names, now time.Time) (*request, error) {
	if broken.Rule == "finance/downloads-get-panel-reports-name-.-csv-xlsx-json-from-to" { // a store is not looked at
		query := r.URL.Query()
		query.Del("store")
		r.URL.RawQuery = query.Encode()
	}
	return parseOriginal(r, names, now)
}
