package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// The model of a task has three parts that know nothing of the server's code: what a client sees of a log, what the
// demo agent does for a message, and which logs are possible.

// logged is an event as it is stored.
type logged struct {
	Seq      int64
	kind     int // of the column: 1 message, 2 status, 3 artifact, 4 note
	state    string
	attempt  int
	artifact string
	add      bool // a chunk that continues the artifact
	last     bool
	texts    []string // of the parts
	op       string   // of a message: the operation that sent it
	outcome  string   // of a note
	at       time.Time
}

func (e *logged) Said() string   { return strings.Join(e.texts, "") }
func (e *logged) streamed() bool { return e.kind == 2 || e.kind == 3 }
func (e *logged) ends() bool     { return e.kind == 2 && terminal(e.state) }
func (e *logged) settles() bool  { return e.kind == 2 && settled(e.state) }
func terminal(state string) bool {
	return slices.Contains([]string{"completed", "failed", "canceled", "rejected"}, state)
}
func parkedIn(state string) bool { return state == "input-required" || state == "auth-required" }
func settled(state string) bool  { return terminal(state) || parkedIn(state) }
func (e *logged) String() string {
	what := map[int]string{1: "message " + e.op, 2: "status " + e.state, 3: "artifact " + e.artifact, 4: "note " + e.outcome}[e.kind]
	return fmt.Sprintf("%3d %-28s attempt %d  %s  %.60q", e.Seq, what, e.attempt, e.at.Format("15:04:05.000"), e.Said())
}

// partTexts are the compared contents of parts: texts as they are, data byte for byte.
func partTexts(parts []a2atest.Part) []string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = p.Text + string(p.Data)
	}
	return out
}

// view is a task at some event of its log.
type view struct {
	state, said string
	history     []string // "user: hi"
	artifacts   []string // "echo: [hi]"
}

// viewed folds the beginning of a log. A status message moves into the history when the next status comes.
func viewed(log []logged) view {
	v := view{state: "submitted"}
	newest := int64(0)
	for _, e := range log {
		if e.kind == 2 {
			newest, v.state, v.said = e.Seq, e.state, e.Said()
		}
	}
	chunks, order := map[string][]string{}, []string(nil)
	for _, e := range log {
		switch {
		case e.kind == 1:
			v.history = append(v.history, "user: "+e.Said())
		case e.kind == 2 && e.Seq < newest && len(e.texts) > 0:
			v.history = append(v.history, "agent: "+e.Said())
		case e.kind == 3:
			if _, known := chunks[e.artifact]; !known {
				order = append(order, e.artifact)
			}
			if !e.add {
				chunks[e.artifact] = nil
			}
			if all := chunks[e.artifact]; e.add && len(all) > 0 && len(e.texts) == 1 {
				all[len(all)-1] += e.texts[0] // a read task has appended text in one part
				break
			}
			chunks[e.artifact] = append(chunks[e.artifact], e.texts...)
		}
	}
	for _, name := range order {
		v.artifacts = append(v.artifacts, fmt.Sprintf("%s: %q", name, chunks[name]))
	}
	return v
}

// stateIn is the name of a state in a version.
func stateIn(d *a2atest.Wire, state string) string {
	if d == a2atest.V01 {
		switch state {
		case "rejected":
			return "failed"
		case "auth-required":
			return "input-required"
		}
	}
	return state
}

// shown are the last messages of the history, for a historyLength. A negative one means that the request has none.
func (v *view) shown(d *a2atest.Wire, length int) []string {
	switch {
	case length < 0 && d == a2atest.V01:
		return nil
	case length < 0:
		return v.history
	}
	return v.history[max(0, len(v.history)-length):]
}

// differs says how an answer differs from this view.
func (v *view) differs(r *a2atest.Result, d *a2atest.Wire, length int) string {
	if got, want := r.State(), stateIn(d, v.state); got != want {
		return fmt.Sprintf("state %q, not %q", got, want)
	}
	if r.Said() != v.said {
		return fmt.Sprintf("status message %q, not %q", r.Said(), v.said)
	}
	var history []string
	for _, m := range r.History {
		history = append(history, m.Role+": "+strings.Join(partTexts(m.Parts), ""))
	}
	if want := v.shown(d, length); !slices.Equal(history, want) {
		return fmt.Sprintf("history %q, not %q", history, want)
	}
	var artifacts []string
	for _, a := range r.Artifacts {
		artifacts = append(artifacts, fmt.Sprintf("%s: %q", a.Name, partTexts(a.Parts)))
	}
	if !slices.Equal(artifacts, v.artifacts) {
		return fmt.Sprintf("artifacts %q, not %q", artifacts, v.artifacts)
	}
	return ""
}

// plan is what the demo agent does for a message. The documents call it the script.
type plan struct {
	artifact string // the only one, or ""
	whole    string // its text, unless it comes in chunks
	chunks   int
	size     int
	ends     string // the state that the run ends in; "" for a run that only a cancel ends
	says     string // the message of that status
	waits    bool   // a run ends in a wait first; the turn of its timer does all this
}

// dataScript is the content of the agent's data artifact, byte for byte.
const dataScript = `{"greeting":"hello","big":12345678901234567890,"float":1.0,"list":[1,"two",null,true],"a":{"z":1,"a":2}}`

// planned parses the script of a turn. before is the script of the turn before it, which may have been a question.
func planned(turn int, before, script string) plan {
	switch {
	case strings.HasPrefix(before, "ask:"):
		p := plan{artifact: "answer", whole: "You answered: " + script, ends: "completed"}
		if turn > 2 {
			p.artifact = fmt.Sprintf("answer-%d", turn-1)
		}
		if question, asks := strings.CutPrefix(script, "ask:"); asks {
			p.ends, p.says = "input-required", question
		}
		return p
	case before == "auth":
		return plan{ends: "completed"}
	}
	verb, rest, _ := strings.Cut(script, ":")
	switch verb {
	case "echo":
		return plan{artifact: "echo", whole: rest, ends: "completed"}
	case "ask":
		return plan{ends: "input-required", says: rest}
	case "fail":
		return plan{ends: "failed", says: rest}
	case "reject":
		return plan{ends: "rejected", says: rest}
	case "message":
		return plan{ends: "failed", says: "A bare reply must be the first event of a run, and the agent's configuration needs direct_replies: true."}
	}
	switch script {
	case "hold":
		return plan{}
	case "auth":
		return plan{ends: "auth-required", says: "Authenticate, then send any message to go on."}
	case "data":
		return plan{artifact: "data", whole: dataScript, ends: "completed"}
	case "crash":
		return plan{ends: "failed", says: "The agent crashed."}
	}
	p := plan{ends: "completed"}
	if n, _ := fmt.Sscanf(script, "chunks=%d size=%d", &p.chunks, &p.size); n == 2 {
		p.artifact = "chunks"
		return p
	}
	if strings.HasPrefix(script, "sleep=") {
		return p
	}
	if strings.HasPrefix(script, "wait=") {
		return plan{artifact: "wait", whole: "Waited.", ends: "completed", waits: true}
	}
	return plan{artifact: "echo", whole: script, ends: "completed"}
}

// emits is how many artifact events the plan has.
func (p *plan) emits() int {
	switch {
	case p.artifact == "":
		return 0
	case p.chunks > 0:
		return p.chunks
	}
	return 1
}

// walker follows a log and checks each step.
type walker struct {
	state   string
	turn    int      // of the message that is answered
	before  string   // the script of the message before the present one
	waiting []logged // the message that is answered, and those behind it
	done    int      // artifact events of the present run, over its attempts
	wrote   int      // the attempt that wrote the last artifact event
	lost    int      // lost attempts of the present run
	waited  bool     // the wait of the plan is over
	plan    plan
}

// legal walks a log. asked says whether a client had requested a cancel before the task's end was seen. accepted is
// when a client first learned that a cancel was accepted. An event has the time at which its statement began,
// possibly before a cancel that it then had to wait for.
func legal(log []logged, asked bool, accepted time.Time) error {
	w := &walker{}
	for i := range log {
		e := &log[i]
		if e.Seq != int64(i+1) {
			return fmt.Errorf("event %d is the %dth", e.Seq, i+1)
		}
		var next *logged
		if i+1 < len(log) {
			next = &log[i+1]
		}
		if err := w.step(e, next, asked, accepted); err != nil {
			return fmt.Errorf("event %d: %w", e.Seq, err)
		}
	}
	return nil
}

func (w *walker) step(e, next *logged, asked bool, accepted time.Time) error {
	if terminal(w.state) {
		return fmt.Errorf("the task had ended")
	}
	switch e.kind {
	case 1:
		if parkedIn(w.state) && (next == nil || next.state != "submitted" || next.attempt != 0) {
			return fmt.Errorf("a message to a parked task, and it does not become submitted")
		}
		w.waiting = append(w.waiting, *e)
		if w.state == "" {
			w.state = "submitted"
		}
		if len(w.waiting) == 1 {
			w.begin()
		}
		return nil
	case 2:
		return w.status(e, asked, accepted)
	case 3:
		return w.emitted(e)
	case 4:
		switch {
		case e.outcome == "lost":
			w.lost++
		case e.outcome == "waits" && w.plan.waits && !w.waited && w.state == "working" && e.attempt > 0:
			w.waited, w.lost = true, 0
		case e.outcome != "returned":
			return fmt.Errorf("a note %q that the agent gives no reason for", e.outcome)
		}
		return nil
	}
	return fmt.Errorf("kind %d", e.kind)
}

// begin takes the first message that waits.
func (w *walker) begin() {
	w.turn++
	w.plan = planned(w.turn, w.before, w.waiting[0].Said())
	w.done, w.wrote, w.lost, w.waited = 0, 0, 0, false
}

func (w *walker) status(e *logged, asked bool, accepted time.Time) error {
	from := w.state
	w.state = e.state
	running := from == "submitted" || from == "working"
	switch {
	case e.state == "canceled":
		if !asked {
			return fmt.Errorf("canceled without a request")
		}
		return nil
	case e.state == "submitted" && parkedIn(from):
		if e.attempt != 0 || len(w.waiting) != 1 || len(e.texts) > 0 {
			return fmt.Errorf("submitted out of %s, with %d messages", from, len(w.waiting))
		}
		return nil
	case !running || e.attempt == 0:
		return fmt.Errorf("%s out of %s by attempt %d", e.state, from, e.attempt)
	case e.state == "working":
		return nil
	case parkedIn(e.state), e.state == "submitted":
		switch {
		case !parkedIn(w.plan.ends) || e.Said() != w.plan.says:
			return fmt.Errorf("it asks %q", e.Said())
		case w.done < w.plan.emits():
			return fmt.Errorf("it asks after %d artifact events of %d", w.done, w.plan.emits())
		case (e.state == "submitted") != (len(w.waiting) > 1):
			return fmt.Errorf("%s while %d messages wait behind the one that is answered", e.state, len(w.waiting)-1)
		case e.state != "submitted" && e.state != w.plan.ends:
			return fmt.Errorf("%s, not %s", e.state, w.plan.ends)
		case !accepted.IsZero() && accepted.Before(e.at):
			return fmt.Errorf("%s after a cancel was accepted", e.state)
		}
		w.before, w.waiting = w.waiting[0].Said(), w.waiting[1:]
		if len(w.waiting) > 0 {
			w.begin()
		}
		return nil
	case e.state == "failed" && strings.HasPrefix(e.Said(), "Gave up after "):
		if w.lost < 3 {
			return fmt.Errorf("given up after %d lost attempts", w.lost)
		}
		return nil
	case e.state != w.plan.ends || e.Said() != w.plan.says:
		return fmt.Errorf("%s %q, not %s %q", e.state, e.Said(), w.plan.ends, w.plan.says)
	case w.done < w.plan.emits():
		return fmt.Errorf("%s after %d artifact events of %d", e.state, w.done, w.plan.emits())
	}
	return nil
}

// emitted checks an artifact event. Chunks come once each, over all attempts. An artifact in one piece is written
// again by an attempt after a lost one.
func (w *walker) emitted(e *logged) error {
	p := &w.plan
	again := e.attempt > w.wrote && w.done > 0
	switch {
	case p.waits && !w.waited:
		return fmt.Errorf("an artifact before the wait")
	case w.state != "working" || e.attempt == 0:
		return fmt.Errorf("an artifact of attempt %d while %s", e.attempt, w.state)
	case e.artifact != p.artifact || len(e.texts) != 1:
		return fmt.Errorf("artifact %q with %d parts, not %q", e.artifact, len(e.texts), p.artifact)
	case e.attempt < w.wrote:
		return fmt.Errorf("attempt %d writes after attempt %d", e.attempt, w.wrote)
	case p.chunks == 0 && (e.texts[0] != p.whole || e.add || !e.last):
		return fmt.Errorf("artifact %.80q, not %.80q", e.texts[0], p.whole)
	case p.chunks == 0 && w.done > 0 && !again:
		return fmt.Errorf("the artifact is written twice by one attempt")
	case p.chunks > 0:
		index, err := strconv.Atoi(e.texts[0][:min(8, len(e.texts[0]))])
		switch {
		case err != nil || index != w.done || index >= p.chunks:
			return fmt.Errorf("chunk %.8q, not number %d of %d", e.texts[0], w.done, p.chunks)
		case len(e.texts[0]) != max(p.size, 29), e.add != (index > 0), e.last != (index == p.chunks-1):
			return fmt.Errorf("chunk %d has %d bytes, append %v, last %v", index, len(e.texts[0]), e.add, e.last)
		}
	}
	if p.chunks > 0 || w.done == 0 {
		w.done++
	}
	w.wrote = e.attempt
	return nil
}

// payload has the members of a stored payload that the model reads.
type payload struct {
	Parts    []a2atest.Part                  `json:"parts"`
	Message  *struct{ Parts []a2atest.Part } `json:"message"`
	Metadata struct {
		Op string `json:"op"`
	} `json:"metadata"`
	Outcome string `json:"outcome"`
}

// logOf reads a task's log. id is the UUID.
func logOf(l *clustertest.DB, id string) ([]logged, error) {
	rows, err := l.Conn.Query(waittest.Context(l.T), `SELECT seq, kind, coalesce(state, 0), attempt, append, last,
		coalesce(artifact_id, ''), coalesce(payload::text, 'null'), created_at FROM holdfast.task_events WHERE task = $1 ORDER BY seq`, id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names := []string{"", "submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected"}
	var out []logged
	for rows.Next() {
		var e logged
		var state int
		var raw []byte
		if err := rows.Scan(&e.Seq, &e.kind, &state, &e.attempt, &e.add, &e.last, &e.artifact, &raw, &e.at); err != nil {
			return nil, err
		}
		var p payload
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, fmt.Errorf("payload of event %d of %s: %w", e.Seq, id, err)
		}
		e.state, e.op, e.outcome = names[state], p.Metadata.Op, p.Outcome
		if p.Message != nil {
			p.Parts = p.Message.Parts
		}
		e.texts = partTexts(p.Parts)
		out = append(out, e)
	}
	return out, rows.Err()
}
