package remote

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Limits of a request. docs/worker-api.yaml has them, too.
const (
	maxAgents    = 100
	maxSlots     = 1000
	maxRuns      = 10_000
	maxName      = 255
	maxClaimWait = time.Minute
	claimWait    = 30 * time.Second
	maxBeatWait  = 30 * time.Second
	maxBody      = 2 << 20
)

// members reads the members of a JSON object. The first mistake stays; later reads return zero values. Unknown members are
// ignored.
type members struct {
	path string
	of   map[string]json.RawMessage
	err  **web.Problem
}

func decode(raw []byte, depth int) (members, *web.Problem) {
	m := members{err: new(*web.Problem)}
	if err := rawjson.Check(raw, depth); err != nil {
		return m, web.Invalid("", "the body is not valid JSON: "+err.Error())
	}
	if json.Unmarshal(raw, &m.of) != nil || m.of == nil {
		return m, web.Invalid("", "the body must be a JSON object")
	}
	return m, nil
}

func (m members) fail(name, format string, args ...any) {
	if *m.err == nil {
		*m.err = web.Invalid(m.path+name, fmt.Sprintf(format, args...))
	}
}

// given returns a member, or nil if it is absent.
func (m members) given(name string, required bool) json.RawMessage {
	raw, ok := m.of[name]
	if !ok || bytes.Equal(raw, []byte("null")) {
		if required {
			m.fail(name, "is missing")
		}
		return nil
	}
	return raw
}

func (m members) object(name string) members {
	out := members{path: m.path + name + ".", err: m.err}
	if raw := m.given(name, true); raw != nil && json.Unmarshal(raw, &out.of) != nil {
		m.fail(name, "must be an object")
	}
	return out
}

func (m members) list(name string, required bool, least, most int) []json.RawMessage {
	raw := m.given(name, required)
	if raw == nil {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		m.fail(name, "must be a list")
	} else if len(list) < least || len(list) > most {
		m.fail(name, "must have %d to %d entries, not %d", least, most, len(list))
		return nil
	}
	return list
}

func (m members) text(name string, required bool) (s string) {
	raw := m.given(name, required)
	if raw == nil {
		return ""
	}
	switch {
	case json.Unmarshal(raw, &s) != nil:
		m.fail(name, "must be a string")
	case utf8.RuneCountInString(s) > maxName:
		m.fail(name, "must have at most %d characters", maxName)
	case strings.ContainsFunc(s, unicode.IsControl):
		m.fail(name, "must have no control characters")
	}
	return s
}

func (m members) number(name string, least, most int) (n int) {
	raw := m.given(name, true)
	if raw == nil {
		return 0
	}
	if json.Unmarshal(raw, &n) != nil || n < least || n > most {
		m.fail(name, "must be a whole number from %d to %d", least, most)
	}
	return n
}

func (m members) flag(name string) (b bool) {
	if raw := m.given(name, false); raw != nil && json.Unmarshal(raw, &b) != nil {
		m.fail(name, "must be true or false")
	}
	return b
}

func (m members) seconds(name string, fallback, most time.Duration) time.Duration {
	raw := m.given(name, false)
	if raw == nil {
		return fallback
	}
	var n float64
	if json.Unmarshal(raw, &n) != nil || math.IsNaN(n) || n < 0 || n > most.Seconds() {
		m.fail(name, "must be a number of seconds from 0 to %v", most.Seconds())
		return 0
	}
	return time.Duration(n * float64(time.Second))
}

// worker reads who sends the request.
func (m members) worker() (w store.RemoteWorker) {
	of := m.object("worker")
	if *m.err != nil {
		return w
	}
	id, err := uuid.Parse(of.text("id", true))
	if err != nil || id == uuid.Nil || id == uuid.Max {
		of.fail("id", "must be a UUID, new with each start of the worker")
	}
	w.ID = task.ID(id)
	w.Name, w.Version, w.SDK = of.text("name", false), of.text("version", false), of.text("sdk", false)
	return w
}

// runs reads the ids of runs. A repeated one counts once.
func (m members) runs(name string, required bool) []store.LentRun {
	list := m.list(name, required, 0, maxRuns)
	out := make([]store.LentRun, 0, len(list))
	seen := make(map[store.LentRun]bool, len(list))
	for i, raw := range list {
		var text string
		run, ok := store.LentRun{}, json.Unmarshal(raw, &text) == nil
		if ok {
			run, ok = parseRun(text)
		}
		if !ok {
			m.fail(fmt.Sprintf("%s[%d]", name, i), "is not the id of a run")
			return nil
		}
		if !seen[run] {
			seen[run] = true
			out = append(out, run)
		}
	}
	return out
}

// runID is the name of a run in this API. It is no secret: each statement also asks for the worker and its agents.
func runID(r store.LentRun) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(r.Task[:], uint64(r.ClaimedAt)))
}

func parseRun(text string) (r store.LentRun, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != len(r.Task)+8 || raw[len(r.Task)]&0x80 != 0 {
		return r, false
	}
	copy(r.Task[:], raw)
	// Later times would not fit into a timestamp of the database.
	at := int64(binary.BigEndian.Uint64(raw[len(r.Task):]))
	r.ClaimedAt = at
	return r, at < 1<<53
}

// claimRequest is the body of a claim.
type claimRequest struct {
	worker  store.RemoteWorker
	slots   map[string]int
	running []store.LentRun
	wait    time.Duration
}

func readClaim(raw []byte, depth int) (r claimRequest, p *web.Problem) {
	m, p := decode(raw, depth)
	if p != nil {
		return r, p
	}
	r.worker, r.slots = m.worker(), map[string]int{}
	for i, raw := range m.list("agents", true, 1, maxAgents) {
		of := members{path: fmt.Sprintf("agents[%d].", i), err: m.err}
		if json.Unmarshal(raw, &of.of) != nil || of.of == nil {
			m.fail(fmt.Sprintf("agents[%d]", i), "must be an object")
			break
		}
		name := of.text("name", true)
		if _, twice := r.slots[name]; twice {
			of.fail("name", "names an agent a second time")
		}
		r.slots[name] = of.number("slots", 0, maxSlots)
		r.worker.Agents = append(r.worker.Agents, name)
	}
	r.running = m.runs("running", false)
	r.wait = m.seconds("wait", claimWait, maxClaimWait)
	return r, *m.err
}

// beatRequest is the body of a heartbeat.
type beatRequest struct {
	worker   store.RemoteWorker
	runs     []store.LentRun
	stopping map[store.LentRun]bool
	wait     time.Duration
}

func readBeat(raw []byte, depth int) (r beatRequest, p *web.Problem) {
	m, p := decode(raw, depth)
	if p != nil {
		return r, p
	}
	r.worker, r.runs, r.stopping = m.worker(), m.runs("runs", true), map[store.LentRun]bool{}
	for _, run := range m.runs("stopping", false) {
		r.stopping[run] = true
	}
	r.wait = m.seconds("wait", 0, maxBeatWait)
	return r, *m.err
}

// releaseRequest is the body of a release.
type releaseRequest struct {
	worker store.RemoteWorker
	runs   []store.LentRun
	leaves bool // the worker stops: this is its last request
}

func readRelease(raw []byte, depth int) (r releaseRequest, p *web.Problem) {
	m, p := decode(raw, depth)
	if p != nil {
		return r, p
	}
	r.leaves = m.flag("leaves")
	r.worker, r.runs = m.worker(), m.runs("runs", true)
	return r, *m.err
}
