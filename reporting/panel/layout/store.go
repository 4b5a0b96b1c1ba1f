package layout

import (
	"net/url"

	"vendorapi/internal/delivery"
)

// NoSegment stands in a path for a store's id that no path can hold, however it
// is written: browsers take %2E%2E for a step up, and the mux a lone %2F for an
// end. The id is then in the query, as id.
const NoSegment = "_"

// StorePath is the address of a store's page, and with an act such as "/confirm"
// of one of its actions. Stores may be called whatever their vendors like.
func StorePath(account delivery.AccountID, externalID, act string) string {
	path := "/stores/" + account.String() + "/"
	switch externalID {
	case ".", "..", "/":
		return path + NoSegment + act + "?id=" + url.QueryEscape(externalID)
	}
	return path + url.PathEscape(externalID) + act
}
