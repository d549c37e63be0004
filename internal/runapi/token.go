package runapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Purpose names the keys of tokens to store.Derive.
const Purpose = "run api"

// tokenPrefix lets a scanner for leaked secrets recognise a token.
const tokenPrefix = "hfrun_"

// A token is the task and the attempt, and their MAC. No token is stored: the attempt in the database is its end.
const (
	idSize   = len(task.ID{})
	bodySize = idSize + 4
	fullSize = bodySize + sha256.Size
)

var errToken = errors.New("not a token of this server")

// Tokens makes and reads tokens. It is safe for concurrent use.
type Tokens struct{ keys [][]byte }

// NewTokens makes Tokens. The first key makes tokens; all of them read tokens.
func NewTokens(keys [][]byte) *Tokens { return &Tokens{keys} }

// Make returns the token of an attempt.
func (t *Tokens) Make(id task.ID, attempt task.Attempt) string {
	raw := binary.BigEndian.AppendUint32(append(make([]byte, 0, fullSize), id[:]...), uint32(attempt))
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(mac(t.keys[0], raw, raw))
}

// read returns the attempt of a token.
func (t *Tokens) read(token string) (id task.ID, attempt task.Attempt, err error) {
	text, ours := strings.CutPrefix(token, tokenPrefix)
	if !ours || len(text) != base64.RawURLEncoding.EncodedLen(fullSize) {
		return id, 0, errToken
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return id, 0, errToken
	}
	for _, key := range t.keys {
		if hmac.Equal(raw[bodySize:], mac(key, nil, raw[:bodySize])) {
			return task.ID(raw[:idSize]), task.Attempt(binary.BigEndian.Uint32(raw[idSize:bodySize])), nil
		}
	}
	return id, 0, errToken
}

// mac appends the MAC of a body.
func mac(key, to, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(body)
	return h.Sum(to)
}
