package load

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Message renders the params that send a text. history is how many messages the answer repeats.
func Message(messageID, text string, blocking bool) []byte {
	return fmt.Appendf(nil, `{"message":{"kind":"message","messageId":%q,"role":"user","parts":[{"kind":"text","text":%s}]},`+
		`"configuration":{"acceptedOutputModes":["*/*"],"blocking":%t,"historyLength":0}}`, messageID, quoted(text), blocking)
}

// TaskQuery renders the params that name a task.
func TaskQuery(id string) []byte {
	return fmt.Appendf(nil, `{"id":%s,"historyLength":0}`, quoted(id))
}

func quoted(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return b
}

// sender renders requests that differ only in the id of their message. An agent may answer a known message with its
// existing task, so ids must differ.
type sender struct {
	req []byte
	at  int // position of the digits
	n   int
}

const messageDigits = 10

func newSender(t *Target, method, text string, blocking bool) *sender {
	id := rand.Text() + "-0000000000"
	req := t.Request(method, Message(id, text, blocking), "")
	return &sender{req: req, at: bytes.Index(req, []byte(id)) + len(id) - messageDigits}
}

func (s *sender) next() []byte {
	s.n++
	for i, n := s.at+messageDigits-1, s.n; i >= s.at; i, n = i-1, n/10 {
		s.req[i] = byte('0' + n%10)
	}
	return s.req
}

// Outcome is the progress of a task.
type Outcome struct {
	TaskID string
	State  string // empty: the agent answered with a bare message, or this is a chunk
	Final  bool   // no event follows
}

// ReadOutcome reads an answer or a document of a stream.
func ReadOutcome(body []byte) (Outcome, error) {
	var answer struct {
		Result struct {
			Kind   string
			ID     string
			TaskID string
			Final  bool
			Status struct{ State string }
		}
		Error *RPCError
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return Outcome{}, fmt.Errorf("the answer is not JSON-RPC: %w", err)
	}
	r := &answer.Result
	switch {
	case answer.Error != nil:
		return Outcome{}, answer.Error
	case r.Kind == "message":
		return Outcome{TaskID: r.TaskID, Final: true}, nil
	case r.Kind == "task":
		return Outcome{r.ID, r.Status.State, settled(r.Status.State)}, nil
	case r.Kind == "status-update":
		return Outcome{r.TaskID, r.Status.State, r.Final}, nil
	case r.Kind == "artifact-update":
		return Outcome{TaskID: r.TaskID}, nil
	}
	return Outcome{}, fmt.Errorf("not a task, a message or an event of A2A 0.3: %.80q", body)
}

func settled(state string) bool {
	switch state {
	case "submitted", "working", "unknown":
		return false
	}
	return true
}

// IsChunk reports whether a document of a stream is a piece of an artifact. Inside a text the quotation marks would be
// escaped.
func IsChunk(data []byte) bool { return bytes.Contains(data, []byte(`"kind":"artifact-update"`)) }

// isCompleted recognizes most answers without parsing them.
func isCompleted(body []byte) bool {
	return bytes.Contains(body, []byte(`"result":{"kind":"task"`)) && bytes.Contains(body, []byte(`"status":{"state":"completed"`))
}

// Stamp finds the emission time in a chunk of the demo agent: index, space, unix nanoseconds.
func Stamp(data []byte) (time.Time, bool) {
	_, at, ok := Piece(data)
	return at, ok
}

// Piece finds the index and the emission time in such a chunk.
func Piece(data []byte) (index int, at time.Time, ok bool) {
	const before, indexDigits, digits = len(`"text":"`), 8, 19
	i := bytes.Index(data, []byte(`"text":"`)) + before
	if i < before || len(data) < i+indexDigits+1+digits {
		return 0, time.Time{}, false
	}
	index, err := strconv.Atoi(string(data[i : i+indexDigits]))
	n, other := strconv.ParseInt(string(data[i+indexDigits+1:i+indexDigits+1+digits]), 10, 64)
	return index, time.Unix(0, n), err == nil && other == nil
}
