// Package resume makes and reads resume URLs. A URL names a task and a turn and proves it by a MAC, so that nothing is
// stored until it is used. Everybody with the URL may use it (decision 0052).
package resume

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Request is a request by the resume URL of a turn.
type Request struct {
	ID      task.ID // of the request; makes the write safe to retry
	Task    task.ID
	Turn    int
	Agent   string
	Content *task.Resumed
	Address string // of the sender
}

// Path is where resume URLs begin, below the public URL of the server. The token follows.
const Path = "/resume/"

// A token is the format, the task, the turn and the MAC.
const (
	format   = 1
	turnAt   = 1 + len(task.ID{})
	macAt    = turnAt + 4
	macSize  = 16
	tokenLen = macAt + macSize
)

// Links makes and reads the URLs of a server. It is safe for concurrent use.
type Links struct {
	base string
	keys [][]byte
}

// New makes links below a URL. The first key signs, and all keys verify. There must be one.
func New(base string, keys [][]byte) *Links {
	l := &Links{base: base + Path}
	for _, k := range keys {
		// The keys of the environment also seal: what one use reveals must not help against the other.
		mac := hmac.New(sha256.New, k)
		_, _ = mac.Write([]byte("holdfast resume url"))
		l.keys = append(l.keys, mac.Sum(nil))
	}
	return l
}

// URL returns the resume URL of a turn. It is the same on all replicas.
func (l *Links) URL(id task.ID, turn int) string {
	token := make([]byte, 0, tokenLen)
	token = append(append(token, format), id[:]...)
	token = binary.BigEndian.AppendUint32(token, uint32(turn))
	return l.base + base64.RawURLEncoding.EncodeToString(append(token, sign(l.keys[0], token)...))
}

// Read returns the task and the turn of a token. It takes the same time for all tokens of the right length.
func (l *Links) Read(token string) (id task.ID, turn int, ok bool) {
	if len(token) != base64.RawURLEncoding.EncodedLen(tokenLen) { // the decoder skips line breaks
		return id, 0, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != tokenLen || raw[0] != format {
		return id, 0, false
	}
	for _, k := range l.keys {
		ok = hmac.Equal(raw[macAt:], sign(k, raw[:macAt])) || ok
	}
	n := binary.BigEndian.Uint32(raw[turnAt:])
	if !ok || n > math.MaxInt32 {
		return id, 0, false
	}
	return task.ID(raw[1:turnAt]), int(n), true
}

func sign(key, text []byte) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(text)
	return mac.Sum(nil)[:macSize]
}
