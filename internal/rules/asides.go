package main

// asides are the sentences and bullets that state no rule, and why; where the
// specification leaves something open, why names the rules that decide it.
var asides = map[string]string{
	"introduction/this-single-document-covers-the":                              "says what the document is",
	"introduction/conventions-base_url-is-the-service":                          "says how the document is written",
	"introduction/placeholders-such-as-order_id-stand":                          "says how the document is written",
	"introduction/what-the-specification-delivery-vendor-api-v1.md-leaves-open": "says what the document is",
	"introduction/comments-in-the-code-cite":                                    "says how the document is used",
	"introduction/every-item-here-is-a":                                         "says how the document is used",
	"what-the-service-does/the-service-lets-a-point-of-sale":                    "introduces the numbered rules below it",
	"store/which-store-fields-are-required":                                     "open: decisions/store-fields-required",
	"store-states/transitions-into-other-store-states":                          "open: states/stores-awaitingfleet-awaitingfleetapproval",
	"order-states/what-moves-an-order-to":                                       "open: states/delivering, states/every-order-reaches-a-terminal",
	"post-orders-orderid-cancel/request-and-response-bodies-not":                "open: decisions/cancel",
	"webhook-receiver-implemented-by-the-vendor/see-events":                     "points to another section",
	"webhook-receiver-implemented-by-the-vendor/how-the-url-is-registered":      "open: decisions/webhook-url-and-secret",
	"event-types/field-names-of-the-store":                                      "open: decisions/store-and-fleet-events",
	"errors/the-complete-list-of-error":                                         "open: decisions/malformed-or-unknown, decisions/unknown-order, decisions/cancel",
	"versioning/v1-is-the-first-version":                                        "says where the version stands, which nothing in it can show",
	"versioning/definition-of-breaking-change-and":                              "open; nothing was decided, because there is no second version",
}
