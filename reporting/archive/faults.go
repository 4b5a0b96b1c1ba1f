package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"

	"vendorapi/internal/delivery"
)

// unavailable is ClickHouse's fault or absence.
type unavailable struct{ cause error }

func (u *unavailable) Error() string   { return u.cause.Error() }
func (u *unavailable) Unwrap() []error { return []error{delivery.ErrUnavailable, u.cause} }

// ours are ClickHouse's exceptions that no waiting mends: the statement is
// wrong, the schema is not as this program wants it, or the user may not.
var ours = map[proto.Error]bool{
	proto.ErrSyntaxError: true, proto.ErrNotImplemented: true, proto.ErrReadonly: true,
	proto.ErrUnknownSetting: true, proto.ErrUnknownFormat: true, proto.ErrUnknownFunction: true,
	proto.ErrUnknownDatabase: true, proto.ErrUnknownTable: true,
	proto.ErrUnknownIdentifier: true, proto.ErrNoSuchColumnInTable: true, proto.ErrNotFoundColumnInBlock: true,
	proto.ErrNumberOfColumnsDoesntMatch: true, proto.ErrIllegalColumn: true,
	proto.ErrNumberOfArgumentsDoesntMatch: true, proto.ErrIllegalTypeOfArgument: true,
	proto.ErrBadArguments: true, proto.ErrArgumentOutOfBound: true,
	proto.ErrUnknownQueryParameter: true, proto.ErrBadQueryParameter: true,
	proto.ErrTypeMismatch: true, proto.ErrNoCommonType: true, proto.ErrCannotConvertType: true,
	proto.ErrDecimalOverflow: true, proto.ErrCannotInsertNullInOrdinaryColumn: true,
	proto.ErrCannotParseText: true, proto.ErrCannotParseNumber: true, proto.ErrCannotParseDate: true,
	proto.ErrCannotParseDatetime: true, proto.ErrCannotParseQuotedString: true,
	proto.ErrCannotParseInputAssertionFailed: true,
	proto.ErrDatabaseAccessDenied:            true, proto.ErrAccessDenied: true,
	proto.ErrUnknownUser: true, proto.ErrWrongPassword: true, proto.ErrRequiredPassword: true,
	proto.ErrAuthenticationFailed: true,
}

// fault says what went wrong in doing what, and whether it may pass.
func (a *Archive) fault(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("clickhouse at %s, %s: %w", a.address, doing, ended)
	}
	err = withoutURL(err)
	if errors.Is(err, context.DeadlineExceeded) {
		// A limit of the driver's own.
		return &unavailable{fmt.Errorf("clickhouse at %s, %s: no answer in time: %w", a.address, doing, err)}
	}
	var exception *clickhouse.Exception
	if errors.As(err, &exception) && ours[proto.Error(exception.Code)] {
		return a.ourFault(doing, proto.Error(exception.Code), err)
	}
	return &unavailable{fmt.Errorf("clickhouse at %s, %s: %w", a.address, doing, err)}
}

// refusals are exceptions about who asks.
var refusals = []proto.Error{
	proto.ErrAuthenticationFailed, proto.ErrUnknownUser, proto.ErrWrongPassword, proto.ErrRequiredPassword,
}

// ourFault says what to do where that is known.
func (a *Archive) ourFault(doing string, code proto.Error, err error) error {
	if slices.Contains(refusals, code) {
		return fmt.Errorf("clickhouse at %s refuses the user or the password: %w", a.address, err)
	}
	if code == proto.ErrUnknownDatabase {
		return fmt.Errorf("clickhouse at %s has no database %s (`reporting migrate` makes it): %w", a.address, a.database, err)
	}
	if code == proto.ErrUnknownTable {
		return fmt.Errorf("clickhouse at %s, %s (`reporting migrate` makes the tables): %w", a.address, doing, err)
	}
	return fmt.Errorf("clickhouse at %s, %s: %w", a.address, doing, err)
}
