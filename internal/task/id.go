package task

import (
	"encoding/hex"
	"errors"
)

// ID is a task's internal identity, a UUIDv7. It orders nothing: Seq does.
type ID [16]byte

// Seq is the position of an event in its task's log, from 1, gap-free.
type Seq int64

// Attempt numbers the runs of a task. Every claim and every rescue raises it.
type Attempt int32

// Fence is the fencing token of a run: a write with another fence than that of the task changes nothing. It has the time of the
// claim because a failover that loses a claim lets the next claim draw the same attempt.
type Fence struct {
	Attempt   Attempt
	ClaimedAt int64 // by the database's clock, in microseconds of Unix time
}

// String returns the id in the usual 8-4-4-4-12 form.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], id[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], id[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], id[8:10])
	b[23] = '-'
	hex.Encode(b[24:], id[10:])
	return string(b[:])
}

// IsZero reports whether the id was never set.
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

var errID = errors.New("not a UUID")

// ParseID parses the 36-character form that String returns.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, errID
	}
	src := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(id[:], []byte(src)); err != nil {
		return ID{}, errID
	}
	return id, nil
}
