//go:build long

package finance

import (
	"fmt"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth/authenv"
)

// Full pages with long lists of names stay small.
func TestPages_StayBelow100kB(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	var orders []archive.Order
	for i := range 500 { // with the longest ids and names that occur
		o := e.order(i, local("2026-11-01 00:00:00.000").Add(time.Duration(i)*time.Hour))
		o.PaymentType, o.Collection = delivery.Cash, delivery.Money{} // an exception each
		o.ExternalOrderID = fmt.Sprintf("SIPARIS-2026-11-%012d", i)
		o.StoreName = fmt.Sprintf("Çiğköfteci Ömer Usta Gıda San. ve Tic. Ltd. Şti. %d", i)
		o.ExternalStoreID = fmt.Sprintf("kadikoy-bahariye-subesi-%d", i)
		o.ID = delivery.MakeOrderID(i%16, delivery.DayOf(o.CreatedAt), delivery.OrderDigest(o.Account, o.ExternalOrderID))
		orders = append(orders, o)
	}

	e.store(orders...)
	for i := range maxChoices - 1 {
		account := &delivery.Account{ID: delivery.NewAccountID(), Name: fmt.Sprintf("Çiğköfteci Ömer Gıda %d", i), CreatedAt: time.Now(), Limits: delivery.DefaultLimits()}
		must(t, e.Ledger.Accounts.Create(t.Context(), account, [32]byte{1}))
	}

	for i := range 20 {
		e.Vendor.NewStore(fmt.Sprintf("branch-%d", i+2), delivery.Active)
	}

	for _, path := range routes() {
		if a := e.client.Get(path+"?"+november+"&account="+e.account.String(), authenv.As("both")).Want(200); len(a.Text) >= 100_000 {
			t.Errorf("%s: %d bytes", path, len(a.Text))
		}
	}

	// Beyond a hundred names are typed.
	e.NewVendor()
	e.NewVendor()
	if input := e.page("/payments?" + november).ByID("account"); input.Data != "input" {
		t.Errorf("over a hundred accounts are offered in a %s", input.Data)
	}

	// "Test" is now the name of several accounts.
	e.client.Get("/payments?" + november + "&account=Test").Want(422)
}
