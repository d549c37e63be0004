package task

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// A token names a task and a number in it, such as a turn or the time of a claim, and proves both by a MAC. Nothing is stored for
// it: the database decides what its number is worth. It is the task, the number and the first 144 bits of the MAC. base64 leaves no bit of it unused, so a token has one
// spelling.
const (
	numberAt = len(ID{})
	macAt    = numberAt + 8
	size     = macAt + 18
)

// Tokens makes and reads the tokens of one purpose. It is safe for concurrent use.
type Tokens struct{ keys [][]byte }

// NewTokens makes Tokens with keys that store.Derive returns for their purpose. The first key signs, and all of them verify.
func NewTokens(keys [][]byte) *Tokens { return &Tokens{keys} }

// Make returns the token of a number in a task. It is the same on all replicas.
func (t *Tokens) Make(id ID, number int64) string {
	body := binary.BigEndian.AppendUint64(append(make([]byte, 0, size), id[:]...), uint64(number))
	return base64.RawURLEncoding.EncodeToString(append(body, mac(t.keys[0], body)...))
}

// Read returns the task and the number of a token. It takes the same time for all tokens of the right length.
func (t *Tokens) Read(token string) (id ID, number int64, ok bool) {
	if len(token) != base64.RawURLEncoding.EncodedLen(size) {
		return id, 0, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != size { // the decoder skips line breaks
		return id, 0, false
	}
	for _, key := range t.keys {
		ok = hmac.Equal(raw[macAt:], mac(key, raw[:macAt])) || ok
	}
	if !ok {
		return id, 0, false
	}
	return ID(raw[:numberAt]), int64(binary.BigEndian.Uint64(raw[numberAt:])), true
}

func mac(key, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write(body)
	return h.Sum(nil)[:size-macAt]
}
