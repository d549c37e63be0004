package push

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Signer makes compact JSON Web Signatures with the keys that the server publishes.
type Signer interface {
	Sign(payload []byte, typ, jku string) (string, error)
}

// tokenLife is the lifetime of a JWT. A receiver remembers its jti that long.
const tokenLife = 5 * time.Minute

// claims are the claims of a JWT about a delivery.
type claims struct {
	Issuer   string `json:"iss"`
	Audience string `json:"aud"` // the URL as it was set: another hook on the same host must not accept the token
	Subject  string `json:"sub"` // the task, as its client calls it; in 0.1 other owners may have tasks of the same name
	Tenant   string `json:"tenant"`
	Owner    string `json:"owner"` // OwnerClaim
	Agent    string `json:"agent"`
	Task     string `json:"taskId"` // the id that this server gave the task: no other task has it
	IssuedAt int64  `json:"iat"`
	Expires  int64  `json:"exp"`
	ID       string `json:"jti"`
	Body     string `json:"request_body_sha256"` // in hex
}

// token returns a JWT for a delivery. It has no jku: a receiver that fetched keys from there would trust any signer.
func token(s Signer, issuer string, d *Delivery, now time.Time) (string, error) {
	digest := sha256.Sum256(d.Body)
	payload, err := json.Marshal(claims{
		Issuer: issuer, Audience: d.Config.URL, Subject: d.TaskID,
		Tenant: d.Owner.Tenant, Owner: OwnerClaim(d.Owner), Agent: d.Agent, Task: d.Task.String(),
		IssuedAt: now.Unix(), Expires: now.Add(tokenLife).Unix(), ID: d.ID, Body: hex.EncodeToString(digest[:]),
	})
	if err != nil {
		return "", err
	}
	return s.Sign(payload, "JWT", "")
}

// OwnerClaim identifies the owner of a task to receivers: SHA-256 of the tenant, a zero byte and the subject, in hex. It
// keeps names out of receivers' logs, but does not hide a name that can be guessed. PostgreSQL stores no zero bytes, so
// two owners never have the same text.
func OwnerClaim(o task.Owner) string {
	digest := sha256.Sum256([]byte(o.Tenant + "\x00" + o.Subject))
	return hex.EncodeToString(digest[:])
}

// DeliveryID is the same for every attempt to deliver the same event, on every replica. Receivers deduplicate by it.
// snapshot says that the delivery is the task as of seq, instead of all events up to seq.
func DeliveryID(id task.ID, c *task.PushConfig, seq task.Seq, snapshot bool) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s\n%q\n%d\n%d\n%t", id, c.ID, c.CreatedAt.UnixMicro(), seq, snapshot)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Secret is a secret for signatures as standardwebhooks.com describes them. The configured secrets sign nothing: they
// derive a secret for each origin of tasks. So no receiver can forge deliveries of another origin, and a receiver that
// has the secret of an origin accepts only the tasks from there. Within an origin, no two tasks have the same id.
type Secret []byte

// Origin says where a task comes from.
type Origin struct {
	Issuer string // the base URL of the server, as in the claim iss
	Owner  task.Owner
	Agent  string
}

// For derives the secret of an origin: HMAC-SHA256 over a fixed prefix and the origin. None of its texts has a zero byte.
func (s Secret) For(o Origin) Secret {
	mac := hmac.New(sha256.New, s)
	_, _ = mac.Write([]byte(strings.Join([]string{"holdfast webhook secret", o.Issuer, o.Owner.Tenant, o.Owner.Subject, o.Agent}, "\x00")))
	return mac.Sum(nil)
}

// Text returns the usual form, which ParseSecret reads.
func (s Secret) Text() string { return secretPrefix + base64.StdEncoding.EncodeToString(s) }

const secretPrefix = "whsec_"

// ParseSecret reads the usual form: whsec_ and base64 of 24 to 64 bytes.
func ParseSecret(s string) (Secret, error) {
	encoded, ok := strings.CutPrefix(s, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("is not whsec_ followed by base64 of 24 to 64 bytes")
	}
	return key, nil
}

// standardSignature returns the header webhook-signature. It has one signature for each secret, so that a receiver may
// still use the previous secret.
func standardSignature(secrets []Secret, from Origin, id string, at int64, body []byte) string {
	signatures := make([]string, len(secrets))
	for i, s := range secrets {
		mac := hmac.New(sha256.New, s.For(from))
		_, _ = fmt.Fprintf(mac, "%s.%s.", id, strconv.FormatInt(at, 10))
		_, _ = mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(signatures, " ")
}
