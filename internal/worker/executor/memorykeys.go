package executor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Keys are ids under which an agent may keep memory outside of Holdfast. Clients choose the ids of contexts, and in 0.1 those
// of tasks: two callers may have the same ones. A key belongs to one task or context of one caller with one agent, and nobody
// can guess it.
type Keys struct{ Task, Context string }

// Keyring makes Keys, always the same with the same secret. It is safe for concurrent use.
type Keyring struct{ secret []byte }

// NewKeyring makes a Keyring with a secret that all replicas have.
func NewKeyring(secret []byte) *Keyring { return &Keyring{secret} }

// Of returns the keys of a task, in the form of UUIDs, which most stores accept. A nil Keyring has no secret: for tests.
func (k *Keyring) Of(t *task.Task) Keys {
	var secret []byte
	if k != nil {
		secret = k.secret
	}
	h := hmac.New(sha256.New, secret)
	for _, f := range []string{"context", t.Tenant, t.Owner, t.Agent, t.ContextID} {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(f))))
		_, _ = h.Write([]byte(f))
	}
	id := uuid.UUID(h.Sum(nil)[:len(uuid.UUID{})])
	id[6] = id[6]&0x0f | 0x80 // version 8 of RFC 9562
	id[8] = id[8]&0x3f | 0x80 // its variant
	return Keys{Task: t.ID.String(), Context: id.String()}
}
