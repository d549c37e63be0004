package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/openapitest"
)

const (
	agentName = "conformance"
	// lease is long: a machine that stalls is no fault of an agent.
	lease      = 30 * time.Second
	shortLease = 20 * time.Second
)

// kind is a kind of request.
type kind string

const (
	claims     kind = "claims"
	heartbeats kind = "heartbeat"
	releases   kind = "release"
	events     kind = "events"
	reads      kind = "reads" // everything else of the run API
)

// server is the scripted server. Everything that a worker does wrong becomes a complaint.
type server struct {
	t    testing.TB
	addr string
	*clock

	mu         sync.Mutex
	http       *http.Server
	changed    chan struct{} // closed and replaced at each change
	credential string
	slots      int // of the worker
	runs       []*run
	counts     map[kind]int
	notBefore  map[string]time.Time // after a Retry-After, by kind and run
	complaints []string
	log        []string
	workers    map[string]bool
	about      map[string]any // the newest worker
	claiming   context.Context
	lease      time.Duration   // of runs
	drain      string          // of the next answer to a claim or a heartbeat
	drained    string          // what was answered
	stale      map[string]bool // connections on which the replica has drained

	// before may answer a request instead of the server. It gets the number of the request of this kind, from 0.
	before func(x *exchange, n int) (answered bool)
	// line may do something else with an event than store it.
	line func(x *exchange, r *run, ordinal int) action
}

// action is what the server does with an event of an upload.
type action struct {
	cut    bool     // close the connection
	store  bool     // before that
	refuse *problem // answer with it
}

var stored = action{store: true}

// problem is an answer that is an error.
type problem struct {
	status int
	reason string
	more   map[string]any
	after  int // Retry-After, in seconds; 0: none
}

// run is an attempt that the server gives away.
type run struct {
	id, token, task string
	document        map[string]any

	given     int           // how often it was in an answer
	lost      bool          // the newest answer with it was cut
	leased    time.Duration // until when; zero: not by a worker
	events    []json.RawMessage
	uploading bool
	over      bool // for the worker
	told      bool // the worker knows that it is over
	late      int  // requests since then
	lateSince time.Duration
	released  bool
	stop      string // of the next heartbeat
	metadata  map[string]any
}

// exchange is a request that the server handles.
type exchange struct {
	s    *server
	kind kind
	run  *run // of the run API
	http.ResponseWriter
	*http.Request
}

func newServer(t testing.TB, slots int) *server {
	t.Helper()
	s := &server{
		t: t, slots: slots, credential: "key-1", changed: make(chan struct{}), counts: map[kind]int{}, notBefore: map[string]time.Time{},
		workers: map[string]bool{}, stale: map[string]bool{}, lease: lease, clock: newClock(t.Context()),
	}
	s.listen(nettest.Reserve(t))
	t.Cleanup(func() { s.away() })
	return s
}

// listen serves on an address.
func (s *server) listen(addr string) {
	l, err := net.Listen("tcp", addr)
	require.NoError(s.t, err)
	s.addr = l.Addr().String()
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve)}
	go func(h *http.Server) { _ = h.Serve(l) }(s.http)
}

// away closes the listener and all connections.
func (s *server) away() { _ = s.http.Close() }

// announce wakes those who wait. s.mu is held.
func (s *server) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// complain records what the worker did wrong. s.mu is held.
func (s *server) complain(format string, args ...any) {
	s.complaints = append(s.complaints, fmt.Sprintf(format, args...))
	s.announce()
}

func (s *server) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.announce()
}

// add queues a run with a message. more has members of its run document.
func (s *server) add(text string, more ...map[string]any) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue(text, more...)
}

// queue is add for a caller that holds s.mu.
func (s *server) queue(text string, more ...map[string]any) *run {
	n := len(s.runs) + 1
	r := &run{id: fmt.Sprintf("run-%d", n), token: fmt.Sprintf("hfrun_token-%d", n), task: fmt.Sprintf("task-%d", n)}
	r.document = map[string]any{
		"version": 1, "idempotencyKey": fmt.Sprintf("key-%d:1", n), "future": map[string]any{"x": 1},
		"task":    map[string]any{"id": r.task, "key": "key of " + r.task, "contextId": "context", "contextKey": "key of the context", "agent": agentName, "owner": "ada", "future": 1},
		"message": map[string]any{"messageId": fmt.Sprintf("m-%d", n), "role": "user", "parts": []any{map[string]any{"text": text}}},
		"turn":    1, "try": 1, "attempt": 1, "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"runApi": map[string]any{"url": "http://" + s.addr + "/run/v1", "token": r.token}, "limits": map[string]any{"event": 16 << 20, "state": 256 << 10, "future": 1},
	}
	for _, m := range more {
		for name, value := range m {
			if r.document[name] = value; value == nil {
				delete(r.document, name)
			}
		}
	}
	s.runs = append(s.runs, r)
	s.announce()
	return r
}

// serve answers a request. It checks first what holds for all of them.
func (s *server) serve(w http.ResponseWriter, q *http.Request) {
	x := &exchange{s: s, ResponseWriter: w, Request: q}
	doc, path := x.document()
	err := doc.CheckTarget(q.Method, path, q.URL.Query())
	s.mu.Lock()
	if err != nil {
		s.complain("%s %s: %v", q.Method, q.URL, err)
		s.mu.Unlock()
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	switch path := q.URL.Path; {
	case strings.HasPrefix(path, "/worker/v1/"):
		x.kind = kind(strings.TrimPrefix(path, "/worker/v1/"))
	case strings.HasSuffix(path, "/events"):
		x.kind = events
	default:
		x.kind = reads
	}
	n := s.counts[x.kind]
	s.counts[x.kind]++
	token := strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
	if doc == &runAPI {
		i := slices.IndexFunc(s.runs, func(r *run) bool { return r.token == token })
		if i < 0 {
			s.complain("%s %s: the token %q is of no run", q.Method, q.URL, token)
			s.mu.Unlock()
			x.problem(&problem{status: http.StatusUnauthorized, reason: "unauthenticated"})
			return
		}
		x.run = s.runs[i]
	}
	s.log = append(s.log, fmt.Sprintf("%s %s %s", time.Now().Format("05.000"), q.Method, x.name()))
	if until, ok := s.notBefore[x.name()]; ok {
		if time.Now().Before(until.Add(-50 * time.Millisecond)) {
			s.complain("%s: came before Retry-After", x.name())
		}
		delete(s.notBefore, x.name())
	}
	before := s.before
	s.mu.Unlock()
	if before != nil && before(x, n) {
		return
	}
	if x.run == nil {
		s.mu.Lock()
		ok := token == s.credential
		s.mu.Unlock()
		if !ok {
			x.problem(&problem{status: http.StatusUnauthorized, reason: "unauthenticated"})
			return
		}
	}
	switch x.kind {
	case claims:
		s.claim(x)
	case heartbeats:
		s.heartbeat(x)
	case releases:
		s.release(x)
	case events:
		s.upload(x)
	default:
		s.read(x)
	}
}

// The documents of the APIs.
var workerAPI, runAPI = openapitest.Document{File: "worker-api.yaml"}, openapitest.Document{File: "run-api.yaml"}

// document is that of the request, with the path in it.
func (x *exchange) document() (*openapitest.Document, string) {
	path := x.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(path, "/run/v1"); ok {
		return &runAPI, rest
	}
	return &workerAPI, strings.TrimPrefix(path, "/worker/v1")
}

func (x *exchange) checkBody(media string, body []byte) error {
	doc, path := x.document()
	return doc.CheckBody(x.Method, path, media, body)
}

// name names a kind of request, with its run.
func (x *exchange) name() string {
	if x.run != nil {
		return string(x.kind) + " of " + x.run.id
	}
	return string(x.kind)
}

// decode reads and checks a JSON body.
func (x *exchange) decode(into any) bool {
	raw, err := io.ReadAll(x.Body)
	if err != nil {
		return false // the worker has left
	}
	media, _, _ := mime.ParseMediaType(x.Header("Content-Type"))
	if err := x.checkBody(media, raw); err != nil {
		x.s.mu.Lock()
		x.s.complain("%s: %v\n%s", x.name(), err, raw)
		x.s.mu.Unlock()
	}
	if err := json.Unmarshal(raw, into); err != nil {
		x.problem(&problem{status: http.StatusBadRequest, reason: "invalid"})
		return false
	}
	return true
}

// Header is that of the request.
func (x *exchange) Header(name string) string { return x.Request.Header.Get(name) }

// answer answers with a document, to which a member is added that no worker knows.
func (x *exchange) answer(status int, doc map[string]any) {
	doc["future"] = map[string]any{"y": []int{1}}
	media := "application/json"
	if status >= http.StatusBadRequest {
		media = "application/problem+json"
	}
	x.ResponseWriter.Header().Set("Content-Type", media)
	raw, err := json.Marshal(doc)
	if err == nil {
		// It asks nothing of SDKs that a server may not do.
		of, path := x.document()
		err = of.Check(x.Method, path, status, x.ResponseWriter.Header(), raw)
	}
	if err != nil {
		x.s.t.Errorf("the script is wrong: %s: %v\n%s", x.name(), err, raw)
	}
	x.ResponseWriter.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	x.WriteHeader(status)
	_, _ = x.ResponseWriter.Write(raw) // the worker may have left
}

func (x *exchange) problem(p *problem) {
	doc := map[string]any{"title": http.StatusText(p.status), "status": p.status, "reason": p.reason, "detail": "The script says so."}
	maps.Copy(doc, p.more)
	if p.after > 0 {
		x.ResponseWriter.Header().Set("Retry-After", strconv.Itoa(p.after))
		x.s.with(func() { x.s.notBefore[x.name()] = time.Now().Add(time.Duration(p.after) * time.Second) })
	}
	x.answer(p.status, doc)
}

// cut closes the connection. With half, half of an answer comes before.
func (x *exchange) cut(half bool) {
	conn, buffered, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2
	}
	if half {
		_, _ = buffered.WriteString("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"ru")
		_ = buffered.Flush()
	}
	_ = conn.Close()
}

// errAnswered ends a claim that the worker has not left.
var errAnswered = errors.New("answered")

func (s *server) claim(x *exchange) {
	var in struct {
		Worker map[string]any
		Agents []struct {
			Name  string
			Slots int
		}
		Running []string
		Wait    *float64
	}
	if !x.decode(&in) {
		return
	}
	ctx := x.Context()
	s.mu.Lock()
	earlier := s.claiming
	s.mu.Unlock()
	if earlier != nil {
		select {
		case <-earlier.Done():
			if errors.Is(context.Cause(earlier), errAnswered) {
				s.with(func() { s.complain("a claim began while another one waits") })
			}
		case <-ctx.Done():
			return
		}
	}
	mine, done := context.WithCancelCause(ctx)
	defer done(errAnswered)
	s.mu.Lock()
	s.claiming, s.about = mine, in.Worker
	s.workers[fmt.Sprint(in.Worker["id"])] = true
	if s.stale[x.RemoteAddr] {
		s.complain("a claim came over a connection on which the replica has drained")
	}
	slots := 0
	for _, a := range in.Agents {
		if a.Name != agentName {
			s.complain("a claim names the agent %q", a.Name)
		}
		slots += a.Slots
	}
	if s.drained == "worker" && slots > 0 {
		s.complain("the worker claims with %d slots although it was retired", slots)
	}
	active := 0
	var missing []*run
	for _, r := range s.runs {
		if r.leased == 0 || r.over {
			continue
		}
		switch {
		case slices.Contains(in.Running, r.id):
			if r.stop == "" { // otherwise the agent's code may have ended, and the worker gives the run back
				active++
			}
		case r.lost:
			missing = append(missing, r)
		default:
			s.complain("running lacks %s", r.id)
		}
	}
	if slots+active > s.slots {
		s.complain("a claim has %d slots, and %d runs go on; the concurrency is %d", slots, active, s.slots)
	}
	wait := 30.0
	if in.Wait != nil {
		wait = *in.Wait
	}
	s.announce() // for those who wait for a claim
	deadline := after(time.Duration(wait * float64(time.Second)))
	for {
		if mine.Err() != nil { // the worker has left
			s.mu.Unlock()
			return
		}
		give := missing
		for _, r := range s.runs {
			if len(give) < slots && r.leased == 0 && !r.over && s.drain != "worker" { // one that is retired gets nothing
				give = append(give, r)
			}
		}
		if len(give) > 0 || s.drain != "" {
			s.give(x, give)
			return
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			s.mu.Lock()
			s.give(x, nil)
			return
		case <-mine.Done(): // not ctx: its children end a moment later, and then with the cause of the defer
			return
		}
		s.mu.Lock()
	}
}

// give answers a claim. s.mu is held, and let go.
func (s *server) give(x *exchange, runs []*run) {
	doc := map[string]any{}
	list := []any{}
	for _, r := range runs {
		r.given, r.lost, r.leased = r.given+1, false, s.now()+s.lease
		list = append(list, map[string]any{"id": r.id, "run": r.document, "lease": s.lease.Seconds(), "future": true})
	}
	doc["runs"] = list
	s.drains(x, doc)
	s.claiming = nil
	s.announce()
	s.mu.Unlock()
	x.answer(http.StatusOK, doc)
}

// drains adds the drain to an answer. s.mu is held.
func (s *server) drains(x *exchange, doc map[string]any) {
	if s.drain == "" {
		return
	}
	doc["drain"], s.drained = s.drain, s.drain
	if s.drain == "replica" {
		s.stale[x.RemoteAddr] = true
		s.drain = ""
	}
}

func (s *server) find(id string) *run {
	for _, r := range s.runs {
		if r.id == id {
			return r
		}
	}
	return nil
}

// passed complains about a run whose lease has ended. s.mu is held.
func (s *server) passed(r *run) {
	if ago := s.now() - r.leased; r.leased > 0 && !r.over && ago > 0 {
		s.complain("the lease of %s ended %s ago", r.id, ago)
		r.leased = s.now() + s.lease
	}
}

func (s *server) heartbeat(x *exchange) {
	var in struct {
		Worker         map[string]any
		Runs, Stopping []string
		Wait           float64
	}
	if !x.decode(&in) {
		return
	}
	s.mu.Lock()
	for _, id := range in.Runs {
		switch r := s.find(id); {
		case r == nil || r.leased == 0:
			s.complain("a heartbeat names %s, which the worker has never got", id)
		case r.over:
			if r.told {
				// A worker with many runs sends several while the answer waits for its turn.
				if r.late++; r.late == 1 {
					r.lateSince = s.now()
				} else if r.late > 2 && s.now()-r.lateSince > 5*time.Second {
					s.complain("heartbeats go on for %s, which is over", id)
				}
			}
		default:
			s.passed(r)
			r.leased = s.now() + s.lease
		}
	}
	deadline := after(time.Duration(in.Wait * float64(time.Second)))
	for waiting := true; ; {
		stops := []any{}
		renewed := false
		for _, id := range in.Runs {
			r := s.find(id)
			if r == nil {
				continue
			}
			renewed = renewed || !r.over
			if r.stop == "" || slices.Contains(in.Stopping, id) {
				if r.over {
					stops = append(stops, map[string]any{"id": id, "stop": "over"})
					r.told = true
				}
				continue
			}
			stop := map[string]any{"id": id, "stop": r.stop, "future": 1}
			if r.metadata != nil {
				stop["metadata"] = r.metadata
			}
			stops = append(stops, stop)
			if r.stop != "canceled" {
				r.over, r.told = true, true
			}
		}
		if !waiting || len(stops) > 0 || s.drain != "" {
			doc := map[string]any{"runs": stops}
			if renewed {
				doc["lease"] = s.lease.Seconds()
			}
			s.drains(x, doc)
			s.announce()
			s.mu.Unlock()
			x.answer(http.StatusOK, doc)
			return
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			waiting = false
		case <-x.Context().Done():
			return
		}
		s.mu.Lock()
	}
}

func (s *server) release(x *exchange) {
	var in struct {
		Worker map[string]any
		Runs   []string
	}
	if !x.decode(&in) {
		return
	}
	s.mu.Lock()
	released := []any{}
	for _, id := range in.Runs {
		r := s.find(id)
		switch {
		case r == nil || r.leased == 0:
			s.complain("the worker releases %s, which it has never got", id)
		case r.told && !r.released:
			s.complain("the worker releases %s, which is over", id)
		case !r.over:
			if r.uploading {
				s.complain("the worker releases %s while it posts events", id)
			}
			r.over, r.told, r.released = true, true, true
			released = append(released, id)
		}
	}
	s.announce()
	s.mu.Unlock()
	x.answer(http.StatusOK, map[string]any{"released": released})
}

// open begins a request of a run. It reports false if the run is over and the request was answered.
func (s *server) open(x *exchange) bool {
	s.mu.Lock()
	r := x.run
	s.passed(r)
	if !r.over {
		s.mu.Unlock()
		return true
	}
	if r.told {
		// One request may have been on its way.
		if r.late++; r.late > 1 && !r.released || r.released {
			s.complain("%s: the worker knows that the run is over", x.name())
		}
	}
	r.told = true
	s.mu.Unlock()
	x.problem(&problem{status: http.StatusGone, reason: "over"})
	return false
}

func (s *server) upload(x *exchange) {
	r := x.run
	from, err := strconv.Atoi(x.URL.Query().Get("from"))
	s.mu.Lock()
	if err != nil {
		s.complain("%s: from: %v", x.name(), err)
	}
	if r.over && !r.told && from < len(r.events) && ended(r.events) {
		// The answer to the upload that has ended the run was cut.
		next := len(r.events)
		r.told = true
		s.mu.Unlock()
		_, _ = io.Copy(io.Discard, x.Body)
		x.answer(http.StatusOK, map[string]any{"next": next, "ended": true})
		return
	}
	s.mu.Unlock()
	if !s.open(x) {
		return
	}
	s.mu.Lock()
	next := len(r.events)
	if r.uploading {
		s.complain("%s: two uploads at a time", x.name())
	}
	if from > next {
		s.complain("%s: from is %d; the next ordinal is %d", x.name(), from, next)
	}
	r.uploading = true
	s.mu.Unlock()
	defer s.with(func() { r.uploading = false })
	if from > next {
		x.problem(&problem{status: http.StatusConflict, reason: "ordinal", more: map[string]any{"field": "from", "next": next}})
		return
	}
	media, _, _ := mime.ParseMediaType(x.Header("Content-Type"))
	in := bufio.NewReaderSize(x.Body, 1<<20)
	if media == "application/json" {
		in = bufio.NewReader(lines(x))
	}
	ordinal := from
	for {
		line, err := in.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if !s.take(x, ordinal, line) {
				return
			}
			ordinal++
		}
		s.mu.Lock()
		over := r.over
		s.mu.Unlock()
		switch {
		case over, errors.Is(err, io.EOF):
			s.mu.Lock()
			next := len(r.events)
			r.told = r.told || r.over
			r.uploading = false
			s.announce()
			s.mu.Unlock()
			x.answer(http.StatusOK, map[string]any{"next": next, "ended": over})
			return
		case err != nil:
			return // the worker has left
		}
	}
}

// lines makes lines of a body that is one document.
func lines(x *exchange) io.Reader {
	raw, err := io.ReadAll(x.Body)
	if err != nil {
		return strings.NewReader("")
	}
	if err := x.checkBody("application/json", raw); err != nil {
		x.s.with(func() { x.s.complain("%s: %v\n%s", x.name(), err, raw) })
	}
	var list struct{ Events []json.RawMessage }
	var out bytes.Buffer
	if json.Unmarshal(raw, &list) != nil || list.Events == nil {
		list.Events = []json.RawMessage{raw}
	}
	for _, e := range list.Events {
		_ = json.Compact(&out, e)
		out.WriteByte('\n')
	}
	return &out
}

// take stores an event, or does with it what the script says. It reports false if the request was answered.
func (s *server) take(x *exchange, ordinal int, line []byte) bool {
	r := x.run
	err := runAPI.CheckAs("executor.schema.json#/$defs/event", line)
	s.mu.Lock()
	if err != nil {
		s.complain("%s: event %d: %v\n%.1000s", x.name(), ordinal, err, line)
	}
	passed, script := ordinal < len(r.events), s.line
	s.mu.Unlock()
	if passed {
		return true
	}
	do := stored
	if script != nil {
		do = script(x, r, ordinal)
	}
	if do.store {
		s.with(func() {
			r.events = append(r.events, line)
			if ends(line) {
				r.over = true
			}
		})
	}
	switch {
	case do.cut:
		s.with(func() { r.uploading = false })
		x.cut(false)
		return false
	case do.refuse != nil:
		s.mu.Lock()
		more := map[string]any{"next": len(r.events)}
		r.uploading = false
		if do.refuse.status == http.StatusGone || do.refuse.status == http.StatusUnauthorized {
			r.over, r.told, more = true, true, nil
		}
		s.announce()
		s.mu.Unlock()
		maps.Copy(do.refuse.more, more)
		x.problem(do.refuse)
		return false
	}
	return true
}

// ends reports whether an event is the last one of its run.
func ends(line []byte) bool {
	var e struct{ Type, State string }
	_ = json.Unmarshal(line, &e)
	switch e.Type {
	case "status":
		return e.State != "" && e.State != "working"
	case "ask", "auth", "complete", "fail", "reject", "reply", "retry", "wait", "call":
		return true
	}
	return false
}

func ended(list []json.RawMessage) bool { return len(list) > 0 && ends(list[len(list)-1]) }

// said is the history of runs in their second turn.
var said = []any{
	map[string]any{"messageId": "m-0", "role": "user", "parts": []any{map[string]any{"text": "hi"}}},
	map[string]any{"role": "agent", "artifactId": "text-1", "parts": []any{map[string]any{"text": "there"}}},
}

// read answers the other requests of the run API.
func (s *server) read(x *exchange) {
	if !s.open(x) {
		return
	}
	path := strings.TrimPrefix(x.URL.Path, "/run/v1")
	switch {
	case path == "" && x.Method == http.MethodGet:
		x.answer(http.StatusOK, maps.Clone(x.run.document))
	case path == "/history":
		list := said
		if x.URL.Query().Get("scope") == "context" {
			list = append([]any{map[string]any{"taskId": "task-0", "messageId": "m", "role": "user", "parts": []any{map[string]any{"text": "first"}}}}, said...)
		}
		x.answer(http.StatusOK, map[string]any{"history": list})
	case path == "/heartbeat":
		x.answer(http.StatusOK, map[string]any{"next": 0})
	case path == "/state/task" && x.Method == http.MethodGet:
		s.mu.Lock()
		state, _ := x.run.document["state"].(map[string]any)
		s.mu.Unlock()
		if state == nil {
			x.problem(&problem{status: http.StatusNotFound, reason: "not_found"})
			return
		}
		x.answer(http.StatusOK, maps.Clone(state["task"].(map[string]any)))
	case path == "/state/task" && x.Method == http.MethodPut:
		var value any
		if x.decode(&value) {
			s.store(x, value)
		}
	default:
		x.problem(&problem{status: http.StatusNotFound, reason: "not_found"})
	}
}

// store stores the state of a task, for the version that the worker names.
func (s *server) store(x *exchange, value any) {
	s.mu.Lock()
	version := 0
	if state, ok := x.run.document["state"].(map[string]any); ok {
		version = state["task"].(map[string]any)["version"].(int)
	}
	match, none := x.Header("If-Match"), x.Header("If-None-Match")
	if match != "" && match != strconv.Quote(strconv.Itoa(version)) || none == "*" && version > 0 || match == "" && none == "" {
		s.mu.Unlock()
		x.problem(&problem{status: http.StatusPreconditionFailed, reason: "state_changed"})
		return
	}
	version++
	x.run.document["state"] = map[string]any{"task": map[string]any{"data": value, "version": version}}
	s.announce()
	s.mu.Unlock()
	x.answer(http.StatusOK, map[string]any{"version": version})
}
