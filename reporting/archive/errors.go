package archive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"

	"vendorapi/internal/delivery"
)

// unavailable marks an error that may pass.
type unavailable struct{ cause error }

func (u *unavailable) Error() string   { return u.cause.Error() }
func (u *unavailable) Unwrap() []error { return []error{delivery.ErrUnavailable, u.cause} }

// authenticationErrors are exceptions about who asks.
var authenticationErrors = []proto.Error{
	proto.ErrAuthenticationFailed, proto.ErrUnknownUser, proto.ErrWrongPassword, proto.ErrRequiredPassword,
}

// permanentErrors do not pass: the statement or the schema is wrong, or the user may not.
var permanentErrors = append([]proto.Error{
	proto.ErrSyntaxError, proto.ErrNotImplemented, proto.ErrReadonly,
	proto.ErrUnknownSetting, proto.ErrUnknownFormat, proto.ErrUnknownFunction, proto.ErrUnknownDatabase, proto.ErrUnknownTable,
	proto.ErrUnknownIdentifier, proto.ErrNoSuchColumnInTable, proto.ErrNotFoundColumnInBlock,
	proto.ErrNumberOfColumnsDoesntMatch, proto.ErrIllegalColumn,
	proto.ErrNumberOfArgumentsDoesntMatch, proto.ErrIllegalTypeOfArgument, proto.ErrBadArguments, proto.ErrArgumentOutOfBound,
	proto.ErrUnknownQueryParameter, proto.ErrBadQueryParameter,
	proto.ErrTypeMismatch, proto.ErrNoCommonType, proto.ErrCannotConvertType,
	proto.ErrDecimalOverflow, proto.ErrCannotInsertNullInOrdinaryColumn,
	proto.ErrCannotParseText, proto.ErrCannotParseNumber, proto.ErrCannotParseDate, proto.ErrCannotParseDatetime,
	proto.ErrCannotParseQuotedString, proto.ErrCannotParseInputAssertionFailed,
	proto.ErrDatabaseAccessDenied, proto.ErrAccessDenied,
}, authenticationErrors...)

// fault says what went wrong in doing what, and whether it may pass.
func (a *Archive) fault(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("clickhouse at %s, %s: %w", a.address, doing, ended)
	}
	err = withoutURL(err)
	if errors.Is(err, context.DeadlineExceeded) { // a limit of the driver's own
		return &unavailable{fmt.Errorf("clickhouse at %s, %s: no answer in time: %w", a.address, doing, err)}
	}
	code := proto.Error(0)
	if exception := (*clickhouse.Exception)(nil); errors.As(err, &exception) {
		code = proto.Error(exception.Code)
	}
	switch {
	case slices.Contains(authenticationErrors, code):
		return fmt.Errorf("clickhouse at %s refuses the user or the password: %w", a.address, err)
	case code == proto.ErrUnknownDatabase:
		return fmt.Errorf("clickhouse at %s has no database %s (`reporting migrate` makes it): %w", a.address, a.database, err)
	case code == proto.ErrUnknownTable:
		return fmt.Errorf("clickhouse at %s, %s (`reporting migrate` makes the tables): %w", a.address, doing, err)
	}
	err = fmt.Errorf("clickhouse at %s, %s: %w", a.address, doing, err)
	if slices.Contains(permanentErrors, code) {
		return err
	}
	return &unavailable{err}
}

// verifyingTransport passes on only ClickHouse's answers. The driver takes any 200 for
// success, a proxy's page of maintenance, too: rows would count as stored that nobody has.
type verifyingTransport struct{ http.RoundTripper }

var errNotClickHouse = errors.New("something answered that is not ClickHouse")

func (t verifyingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	// Some proxies keep only one of the two.
	if resp.Header.Get("X-ClickHouse-Query-Id") != "" || resp.Header.Get("X-ClickHouse-Server-Display-Name") != "" {
		return resp, nil
	}
	return nil, errors.Join(fmt.Errorf("%w: %s, %s", errNotClickHouse, resp.Status, resp.Header.Get("Content-Type")), resp.Body.Close())
}
