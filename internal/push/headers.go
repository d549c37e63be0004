package push

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// signatureHeader always has the JWT. Authorization has it only if the client wants no other credential there.
const signatureHeader = "X-A2A-Signature"

// headers returns the headers of a delivery.
func (s *Sender) headers(d *Delivery, now time.Time) (http.Header, error) {
	h := http.Header{}
	c := d.Config
	h.Set("Content-Type", d.ContentType)
	h.Set("User-Agent", s.opt.UserAgent)
	// With this header, the transport may also repeat a POST whose idle connection was dead.
	h.Set("Idempotency-Key", d.ID)
	if d.Reference {
		h.Set("X-Holdfast-Reference", "true")
	}
	tokenHeaders, authorizesKeys := s.opt.Headers(c.Dialect)
	if c.Token != "" {
		for _, name := range tokenHeaders {
			h.Set(name, c.Token)
		}
	}
	jwt, err := token(s.opt.Signer, s.opt.Issuer, d, now)
	if err != nil {
		return nil, err
	}
	h.Set(signatureHeader, jwt)
	if !authenticate(h, c, authorizesKeys) {
		h.Set("Authorization", "Bearer "+jwt)
	}
	if len(s.opt.Secrets) > 0 {
		from := Origin{Issuer: s.opt.Issuer, Owner: d.Owner, Agent: d.Agent}
		h.Set("Webhook-Id", d.ID)
		h.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
		h.Set("Webhook-Signature", standardSignature(s.opt.Secrets, from, d.ID, now.Unix(), d.Body))
	}
	return h, nil
}

// authenticate sets the credential that the client wants at its receiver. It reports whether that uses the header
// Authorization.
func authenticate(h http.Header, c *task.PushConfig, authorizesKeys bool) (authorization bool) {
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
		if name, value, ok := ownHeader(h, c.Credentials); ok {
			h.Set(name, value)
			return name == "Authorization"
		}
		h.Set("X-API-Key", c.Credentials)
		if !authorizesKeys {
			return false
		}
	}
	h.Set("Authorization", scheme+" "+c.Credentials)
	return true
}

// ownHeader returns the header that the credentials of an API key describe: {"in": "header", "name": "X-K", "value": "v"}.
// ok is false for credentials that are the key itself, and for a header that is ours or the connection's.
func ownHeader(ours http.Header, credentials string) (name, value string, ok bool) {
	var described struct{ In, Name, Value string }
	if json.Unmarshal([]byte(credentials), &described) != nil || described.In != "header" {
		return "", "", false
	}
	name, value = http.CanonicalHeaderKey(described.Name), described.Value
	ok = httpguts.ValidHeaderFieldName(name) && value != "" && httpguts.ValidHeaderFieldValue(value) &&
		ours.Get(name) == "" && !ofConnection[name]
	return name, value, ok
}

// ofConnection are headers that frame a request or describe its connection.
var ofConnection = map[string]bool{
	"Connection": true, "Content-Encoding": true, "Content-Length": true, "Expect": true, "Host": true, "Keep-Alive": true,
	"Proxy-Authorization": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

const schemeAPIKey = "ApiKey"

// canonical returns the usual spelling of a scheme that the A2A documents describe. Some receivers compare it
// case-sensitively.
func canonical(scheme string) (usual string, known bool) {
	for _, s := range []string{"Bearer", "Basic", schemeAPIKey} {
		if strings.EqualFold(s, scheme) {
			return s, true
		}
	}
	return scheme, false
}
