package contract

import (
	"errors"
	"net/url"
	"regexp"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
)

// formats are those that the documents name; without a judge of its own the
// library takes any text for a format.
var formats = map[string]openapi3.StringFormatValidator{
	"uuid": openapi3.NewCallbackValidator(func(text string) error {
		if !uuid.MatchString(text) {
			return errors.New("is no UUID")
		}
		return nil
	}),
	"uri": openapi3.NewCallbackValidator(func(text string) error {
		if u, err := url.Parse(text); err != nil || u.Scheme == "" || u.Host == "" {
			return errors.New("is no absolute URI")
		}
		return nil
	}),
	"date": openapi3.NewCallbackValidator(func(text string) error {
		_, err := time.Parse(time.DateOnly, text)
		return err
	}),
}

// uuid is of any version: an order's id is of version 8.
var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
