package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"vendorapi/internal/delivery"
)

// Owner is the ledger to which a database belongs. Whoever migrates a database first writes it
// into the table identity, where it stays: two environments, or two ledgers of one environment,
// that were given the same database would mix their orders and their books.
type Owner struct {
	Environment string // production or sandbox
	Ledger      string // ledger.Ledger's ID
}

// owned is a row of identity.
type owned struct {
	Owner
	number uint32
	since  time.Time
}

// ErrOtherOwner reports that the database belongs to another ledger.
var ErrOtherOwner = errors.New("the database belongs to another ledger")

// CheckOwner is nil when the database belongs to the owner. It fails with ErrOtherOwner when it
// belongs to another one, and with ErrIncomplete when it belongs to nobody yet.
func (a *Archive) CheckOwner(ctx context.Context, o Owner) error {
	current, err := a.owner(ctx)
	if err != nil {
		return err
	}

	if current == nil {
		return a.belongsToNobody()
	}
	return a.compareOwner(current, o)
}

// CheckEnvironment is what remains of CheckOwner while the ledger cannot be asked for its id: the database may
// belong to any ledger of the environment.
func (a *Archive) CheckEnvironment(ctx context.Context, environment string) error {
	current, err := a.owner(ctx)
	if err != nil {
		return err
	}

	if current == nil {
		return a.belongsToNobody()
	}

	if current.Environment != environment {
		return fmt.Errorf("database %s of clickhouse at %s: %w: it is that of %s, and this is %s. %s",
			a.database, a.address, ErrOtherOwner, current.Environment, environment, ownDatabaseAdvice)
	}

	return nil
}

// belongsToNobody returns the error of a database that does not say whose it is.
func (a *Archive) belongsToNobody() error {
	return fmt.Errorf("database %s of clickhouse at %s: %w: it does not say to which ledger it belongs", a.database, a.address, ErrIncomplete)
}

const ownDatabaseAdvice = "Give each environment a database of its own (clickhouse.database, CLICKHOUSE_DATABASE), and check REDIS_URL and CLICKHOUSE_URL"

func (a *Archive) compareOwner(current *owned, o Owner) error {
	if current.Owner == o {
		return nil
	}

	advice := ownDatabaseAdvice
	if current.Environment == o.Environment {
		advice += fmt.Sprintf(". Only if this ledger takes the place of that one, which was lost without a backup: `reporting migrate --take-over %s`", current.Ledger)
	}

	return fmt.Errorf("database %s of clickhouse at %s: %w: it is that of ledger %s of %s since %s, and this is ledger %s of %s. %s",
		a.database, a.address, ErrOtherOwner, current.Ledger, current.Environment, current.since.In(delivery.Istanbul).Format(time.DateOnly),
		o.Ledger, o.Environment, advice)
}

// Claim makes the owner that of a database that belongs to nobody yet, whose tables exist. It fails
// as CheckOwner does when the database belongs to another one. Of two ledgers that claim it at the
// same time, one fails.
func (a *Archive) Claim(ctx context.Context, o Owner) error {
	current, err := a.owner(ctx)
	if err != nil {
		return err
	}

	if current == nil {
		if err := a.writeOwner(ctx, 1, o); err != nil {
			return err
		}
	}

	return a.CheckOwner(ctx, o)
}

// TakeOver makes the owner that of a database that belongs to the ledger named from, of the same
// environment. It reports false, and changes nothing, when it is the owner already.
func (a *Archive) TakeOver(ctx context.Context, from string, o Owner) (taken bool, err error) {
	current, err := a.owner(ctx)
	switch {
	case err != nil:
		return false, err
	case current == nil:
		return false, fmt.Errorf("database %s of clickhouse at %s belongs to nobody yet: there is nothing to take over", a.database, a.address)
	case current.Owner == o:
		return false, nil
	case current.Environment != o.Environment, current.Ledger != from:
		return false, a.compareOwner(current, o)
	}

	if err := a.writeOwner(ctx, current.number+1, o); err != nil {
		return false, err
	}

	return true, a.CheckOwner(ctx, o)
}

func (a *Archive) writeOwner(ctx context.Context, number uint32, o Owner) error {
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(a.storingSettings(identity)))
	return a.exec(ctx, "INSERT INTO identity SELECT {number:UInt32}, {environment:String}, {ledger:String}, now64(3)",
		clickhouse.Named("number", number), clickhouse.Named("environment", o.Environment), clickhouse.Named("ledger", o.Ledger))
}

// owner reads whose the database is; nil: nobody's, or it has no table that says so.
func (a *Archive) owner(ctx context.Context) (current *owned, err error) {
	exists, err := a.hasTable(ctx, identity.name)
	if err != nil || !exists {
		return nil, err
	}

	err = a.Each(ctx, "SELECT number, environment, ledger, since FROM identity ORDER BY number DESC, since, ledger LIMIT 1", func(rows driver.Rows) error {
		current = &owned{}
		return rows.Scan(&current.number, &current.Environment, &current.Ledger, &current.since)
	})

	return current, err
}

func (a *Archive) hasTable(ctx context.Context, name string) (bool, error) {
	var tables uint64
	row := a.server.QueryRow(ctx, "SELECT count() FROM system.tables WHERE database = {database:String} AND name = {name:String}",
		clickhouse.Named("database", a.database), clickhouse.Named("name", name))
	err := row.Scan(&tables)
	return tables > 0, a.fault(ctx, "reading system.tables", err)
}
