package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"time"
)

// A device cookie says that somebody has signed in with this browser before. It
// opens nothing: it only keeps what strangers try out of the way of the next
// sign-in. It is signed with the user's line in PANEL_USERS, so every replica
// knows it, nothing is stored, and another password ends it.
const (
	plainDevice    = "panel-device"
	secureDevice   = "__Host-panel-device"
	deviceLifetime = 90 * 24 * time.Hour
	deviceNonce    = 16 // bytes
)

func (g *Gate) deviceName(r *http.Request) string {
	if g.secure(r) {
		return secureDevice
	}
	return plainDevice
}

// setDevice lets the browser be known as one of the user's.
func (g *Gate) setDevice(w http.ResponseWriter, r *http.Request, user *User) {
	b := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(deviceLifetime).Unix()))
	b = append(b, make([]byte, deviceNonce)...)
	_, _ = rand.Read(b[8:]) // never fails, crypto/rand ends the program instead
	http.SetCookie(w, &http.Cookie{Name: g.deviceName(r), Value: base64.RawURLEncoding.EncodeToString(append(b, user.deviceMAC(b)...)),
		Path: "/", MaxAge: int(deviceLifetime / time.Second), HttpOnly: true, Secure: g.secure(r), SameSite: http.SameSiteLaxMode})
}

// device is by what the browser is known as one of the user's; empty: it is not.
func (g *Gate) device(r *http.Request, user *User) string {
	cookie, err := r.Cookie(g.deviceName(r))
	if err != nil || user == nil {
		return ""
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cookie.Value)
	if err != nil || len(b) != 8+deviceNonce+sha256.Size {
		return ""
	}
	signed, mac := b[:8+deviceNonce], b[8+deviceNonce:]
	if !hmac.Equal(mac, user.deviceMAC(signed)) || time.Now().Unix() >= int64(binary.BigEndian.Uint64(signed)) {
		return ""
	}
	return string(signed)
}

func (u *User) deviceMAC(signed []byte) []byte {
	mac := hmac.New(sha256.New, []byte(u.Line()))
	mac.Write([]byte("panel device\x00"))
	mac.Write(signed)
	return mac.Sum(nil)
}
