package push

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The headers in which versions of A2A have the token of the configuration. Receivers that
// were written after one document know one name.
var tokenHeaders = map[string][]string{
	"0.1": {"X-A2A-Notification-Token", "X-A2A-Token"},
	"0.3": {"X-A2A-Notification-Token"},
	"1.0": {"X-A2A-Notification-Token", "A2A-Notification-Token"},
}

// signatureHeader has the JWT always; Authorization has it only where the client asked for
// nothing else there.
const signatureHeader = "X-A2A-Signature"

// headers are those of a delivery.
func (s *Sender) headers(d *Delivery, now time.Time) (http.Header, error) {
	h := http.Header{}
	c := d.Config
	h.Set("Content-Type", d.ContentType)
	h.Set("User-Agent", s.opt.UserAgent)
	// It also lets the transport repeat a POST whose idle connection had died.
	h.Set("Idempotency-Key", d.ID)
	if c.Token != "" {
		for _, name := range tokenHeaders[c.Dialect] {
			h.Set(name, c.Token)
		}
	}
	jwt, err := token(s.opt.Signer, s.opt.Issuer, d, now)
	if err != nil {
		return nil, err
	}
	h.Set(signatureHeader, jwt)
	if !authenticate(h, c) {
		h.Set("Authorization", "Bearer "+jwt)
	}
	if len(s.opt.Secrets) > 0 {
		h.Set("Webhook-Id", d.ID)
		h.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
		h.Set("Webhook-Signature", standardSignature(s.opt.Secrets, d.ID, now.Unix(), d.Body))
	}
	return h, nil
}

// authenticate sets what the client wants us to show at its receiver, and reports whether
// that took the header Authorization.
func authenticate(h http.Header, c *task.PushConfig) (authorization bool) {
	if c.Credentials == "" || len(c.Schemes) == 0 {
		return false
	}
	scheme := c.Schemes[0]
	for _, offered := range c.Schemes {
		if usual, known := canonical(offered); known {
			scheme = usual
			break
		}
	}
	if scheme == schemeAPIKey {
		h.Set("X-API-Key", c.Credentials)
		if c.Dialect != "1.0" {
			return false
		}
		// 1.0 wants this header, whatever the scheme.
	}
	h.Set("Authorization", scheme+" "+c.Credentials)
	return true
}

const schemeAPIKey = "ApiKey"

// canonical is a scheme that the documents say how to use, as they write it: there are
// receivers that compare case by case.
func canonical(scheme string) (usual string, known bool) {
	for _, s := range []string{"Bearer", "Basic", schemeAPIKey} {
		if strings.EqualFold(s, scheme) {
			return s, true
		}
	}
	return scheme, false
}
