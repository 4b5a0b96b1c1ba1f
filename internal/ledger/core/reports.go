package core

import (
	"vendorapi/internal/delivery"
)

func codeUpdate(c *Codec, u *delivery.Update) {
	c.All((*byte)(&u.Kind), (*byte)(&u.Status), u.Order[:], u.Fleet[:], &u.At, &u.Courier, &u.ETA, &u.Location, (*string)(&u.Failure))
}

func EncodeUpdate(u *delivery.Update) []byte {
	return Encode(func(c *Codec) { codeUpdate(c, u) })
}

func DecodeUpdate(record string) (*delivery.Update, error) {
	u := new(delivery.Update)
	return u, Decode("update", record, func(c *Codec) { codeUpdate(c, u) })
}
