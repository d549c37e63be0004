package checks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
)

// fake is a small server of A2A 1.0 over JSON-RPC at two addresses of a network in memory. It keeps its promises, except for one fault. It also takes the
// method names of 0.3, and answers them as 1.0.
type fake struct {
	fault    string
	plain    bool // it announces no extension
	purges   bool // canceled tasks
	replicas []*replica
	network  nettest.Network
	client   *http.Client
	stop     context.CancelFunc
	ctx      context.Context

	mu     sync.Mutex
	made   int
	tasks  []*job // the oldest first
	keys   map[string]*job
	bodies map[string]string // of keys
	hurt   bool
}

type object = map[string]any

// replica is one address.
type replica struct {
	*fake
	server *httptest.Server
	down   bool
}

// job is a task.
type job struct {
	id, context, owner string
	state              string
	text               []byte
	name, artifact     string // of the newest artifact, before and after its first chunk
	older              []object
	script             string
	history            []any
	log                []object
	stale              object // as it was at the first event
	changed            chan struct{}
	cancel             context.CancelFunc
	hook               string
	readers            map[*int]bool // how far each stream is
}

func newFake(t *testing.T, fault string) *fake {
	t.Helper()
	f := &fake{fault: fault, keys: map[string]*job{}, bodies: map[string]string{}}
	f.ctx, f.stop = context.WithCancel(t.Context())
	t.Cleanup(f.stop)
	f.client = f.network.Client(t)
	for range 2 {
		r := &replica{fake: f}
		r.server = f.network.Serve(t, r)
		f.replicas = append(f.replicas, r)
	}
	return f
}

func (f *fake) urls() (all []string) {
	for _, r := range f.replicas {
		all = append(all, r.server.URL)
	}
	return all
}

// kill takes the first address away, and does what the fault says that a restart does.
func (f *fake) kill(context.Context) error {
	f.mu.Lock()
	f.replicas[0].down = true
	switch f.fault {
	case "a restart loses a task":
		f.tasks = slices.Delete(f.tasks, 0, 1)
	case "a restart loses a result":
		f.tasks[slices.IndexFunc(f.tasks, func(j *job) bool { return j.state == "COMPLETED" })].text = nil
	case "a restart forgets a question":
		for _, j := range f.tasks {
			if j.state == "INPUT_REQUIRED" {
				j.state = "WORKING"
			}
		}
	case "work dies with its process":
		for _, j := range f.tasks {
			j.cancel()
		}
	}
	f.mu.Unlock()
	f.replicas[0].server.CloseClientConnections()
	return nil
}

func (f *fake) start(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replicas[0].down = false
	return nil
}

func (r *replica) card() object {
	extensions := []object{{"uri": dispatch.ResumeURI}, {"uri": dispatch.IdempotencyURI}}
	if r.plain {
		extensions = []object{}
	}
	return object{
		"name": "fake", "description": "", "version": "1", "skills": []any{}, "defaultInputModes": []string{"text/plain"}, "defaultOutputModes": []string{"text/plain"},
		"capabilities":        object{"streaming": true, "pushNotifications": true, "extensions": extensions},
		"supportedInterfaces": []object{{"url": r.server.URL, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}},
	}
}

type params struct {
	ID            string
	HistoryLength *int
	ContextID     string
	PageSize      int
	PageToken     string
	Message       *struct {
		MessageID, TaskID, ContextID string
		Role                         string
		Parts                        []struct{ Text string }
	}
	Configuration struct {
		ReturnImmediately          bool
		TaskPushNotificationConfig struct{ URL string }
	}
}

func (r *replica) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	down := r.down
	r.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	if req.Method == http.MethodGet {
		answer(w, r.card())
		return
	}
	raw, _ := io.ReadAll(req.Body)
	_ = nettest.Pause(req.Context(), time.Millisecond) // calls overlap, as on a network
	if r.fault == "wrong requests are internal errors" && !json.Valid(raw) {
		http.Error(w, "Traceback (most recent call last)", http.StatusInternalServerError)
		return
	}
	var call struct {
		Method string
		Params json.RawMessage
	}
	if err := json.Unmarshal(raw, &call); err != nil {
		refuse(w, map[bool]int{true: -32700, false: -32600}[!json.Valid(raw)], "the request is wrong")
		return
	}
	var p params
	if err := json.Unmarshal(call.Params, &p); call.Params != nil && err != nil {
		if r.fault == "wrong params are internal errors" {
			refuse(w, -32603, "internal error")
			return
		}
		refuse(w, -32602, "the params are wrong")
		return
	}
	owner := req.Header.Get("Authorization")
	if call.Method == "tasks/get" && req.Header.Get("A2A-Version") == "" {
		call.Method = "of 0.1"
	}
	switch call.Method {
	case "SendMessage", "message/send", "SendStreamingMessage", "message/stream":
		r.send(w, req, strings.Contains(strings.ToLower(call.Method), "stream"), &p, owner, string(raw))
	case "GetTask", "tasks/get":
		if j := r.find(w, p.ID, owner); j != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			answer(w, object{"result": r.show(j, call.Method == "GetTask")})
		}
	case "CancelTask", "tasks/cancel":
		if j := r.find(w, p.ID, owner); j != nil {
			r.canceled(w, j)
		}
	case "SubscribeToTask", "tasks/resubscribe":
		if j := r.find(w, p.ID, owner); j != nil {
			r.subscribe(w, req, j)
		}
	case "ListTasks":
		r.list(w, &p, owner)
	case "":
		refuse(w, -32600, "no method")
	default:
		refuse(w, -32601, "no such method")
	}
}

func answer(w http.ResponseWriter, o object) {
	o["jsonrpc"], o["id"] = "2.0", 1
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}

func refuse(w http.ResponseWriter, code int, text string) {
	answer(w, object{"error": object{"code": code, "message": text}})
}

func (r *replica) find(w http.ResponseWriter, id, owner string) *job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.look(w, id, owner)
}

// look is find with the fake locked.
func (r *replica) look(w http.ResponseWriter, id, owner string) *job {
	for _, j := range r.tasks {
		if j.id != id {
			continue
		}
		switch {
		case j.owner == owner, r.fault == "another caller reads a task":
			return j
		case r.fault == "another caller learns that a task exists":
			refuse(w, -32000, "forbidden")
			return nil
		}
	}
	refuse(w, -32001, "task not found")
	return nil
}

// shown is a task as it is.
func (j *job) shown() object {
	o := object{"id": j.id, "contextId": j.context, "status": object{"state": "TASK_STATE_" + j.state}, "history": slices.Clone(j.history)}
	if j.artifact != "" {
		o["artifacts"] = append(slices.Clone(j.older), j.newest())
	}
	return o
}

func (j *job) newest() object {
	return object{"artifactId": j.artifact, "parts": []object{{"text": string(j.text)}}}
}

// show is a task as this address shows it. The fake is locked.
func (r *replica) show(j *job, modern bool) object {
	switch {
	case r.fault == "an address shows old states" && r == r.replicas[1] && j.stale != nil:
		return j.stale
	case r.fault == "a version shows other artifacts" && !modern:
		o := j.shown()
		delete(o, "artifacts")
		return o
	}
	return j.shown()
}

// add appends an event to the log, and changes the task. The fake is locked.
func (f *fake) add(j *job, state, text string, more bool) {
	event := object{"taskId": j.id, "contextId": j.context}
	if state != "" {
		j.state = state
		event["status"] = object{"state": "TASK_STATE_" + state}
		event = object{"statusUpdate": event}
	} else {
		if !more {
			j.text = nil
		}
		j.text = append(j.text, text...)
		j.artifact = j.name
		event["artifact"] = object{"artifactId": j.artifact, "parts": []object{{"text": text}}}
		event["append"] = more
		event = object{"artifactUpdate": event}
	}
	j.log = append(j.log, event)
	if j.stale == nil {
		j.stale = j.shown()
	}
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *job) ended() bool {
	return slices.Contains([]string{"COMPLETED", "CANCELED", "FAILED"}, j.state)
}

func (r *replica) send(w http.ResponseWriter, req *http.Request, stream bool, p *params, owner, raw string) {
	m := p.Message
	if m == nil || len(m.Parts) == 0 {
		refuse(w, -32602, "message.parts: is required")
		return
	}
	text := m.Parts[0].Text
	key := req.Header.Get("Idempotency-Key")
	if r.plain {
		key = ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before, body := r.keys[key], r.bodies[key]
	if r.fault == "a repetition at the same time is a new message" {
		r.mu.Unlock()
		_ = nettest.Pause(r.ctx, 5*time.Millisecond) // between the look and the write
		r.mu.Lock()
	}
	var j *job
	switch {
	case key != "" && before != nil && body != raw:
		refuse(w, -32602, "Idempotency-Key: belongs to another request")
		return
	case key != "" && before != nil:
		j = before
	case m.TaskID != "":
		if j = r.look(w, m.TaskID, owner); j == nil {
			return
		}
		if j.state != "INPUT_REQUIRED" {
			refuse(w, -32004, "the task takes no messages")
			return
		}
		j.history = append(j.history, history(m.MessageID, text, m.Parts[len(m.Parts)-1].Text))
		if j.artifact != "" {
			j.older = append(j.older, j.newest())
		}
		if r.fault == "an answer overwrites older ones" && len(j.older) == 2 {
			j.older = nil
		}
		j.name, j.artifact, j.text = "answer to "+m.MessageID, "", nil
		r.add(j, "WORKING", "", false)
		r.add(j, "", "You answered: "+text, false)
		if strings.HasPrefix(text, "ask:") {
			r.add(j, "INPUT_REQUIRED", "", false)
		} else {
			r.add(j, "COMPLETED", "", false)
		}
	default:
		j = r.create(owner, m.ContextID, text, history(m.MessageID, text, m.Parts[len(m.Parts)-1].Text))
		if key != "" {
			r.keys[key], r.bodies[key] = j, raw
		}
		if j.hook = p.Configuration.TaskPushNotificationConfig.URL; j.hook != "" {
			go r.push(j)
		}
	}
	if stream {
		r.stream(w, req, j, true, 0)
		return
	}
	for !p.Configuration.ReturnImmediately && !j.ended() && j.state != "INPUT_REQUIRED" {
		if r.wait(req.Context(), j) != nil {
			return
		}
	}
	answer(w, object{"result": object{"task": r.show(j, true)}})
}

// wait unlocks the fake until the task has changed.
func (f *fake) wait(ctx context.Context, j *job) error {
	changed := j.changed
	f.mu.Unlock()
	defer f.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func history(id string, texts ...string) object {
	parts := []object{}
	for _, text := range texts {
		parts = append(parts, object{"text": text})
	}
	return object{"messageId": id, "role": "ROLE_USER", "parts": parts}
}

// create begins a task. The fake is locked.
func (f *fake) create(owner, contextID, script string, first object) *job {
	f.made++
	j := &job{id: fmt.Sprintf("task-%04d", f.made), owner: owner, state: "SUBMITTED", script: script, changed: make(chan struct{}), history: []any{first}, readers: map[*int]bool{}}
	switch {
	case strings.HasPrefix(script, "echo:"):
		j.name = "echo"
	case strings.HasPrefix(script, "chunks="):
		j.name = "chunks"
	}
	if j.context = contextID; contextID == "" {
		j.context = "context-of-" + j.id
	}
	var ctx context.Context
	ctx, j.cancel = context.WithCancel(f.ctx)
	f.tasks = append(f.tasks, j)
	go f.perform(ctx, j)
	return j
}

// perform does what the script says, in the language of the demo agent.
func (f *fake) perform(ctx context.Context, j *job) {
	do := func(state, text string, more bool) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for f.fault == "a reader that does not read stops the work" && ctx.Err() == nil && slices.ContainsFunc(slices.Collect(maps.Keys(j.readers)), func(at *int) bool { return *at < len(j.log)-8 }) {
			f.mu.Unlock()
			_ = nettest.Pause(ctx, time.Millisecond)
			f.mu.Lock()
		}
		if ctx.Err() != nil || j.ended() {
			return false
		}
		f.add(j, state, text, more)
		return true
	}
	if !do("WORKING", "", false) {
		return
	}
	verb, rest, _ := strings.Cut(j.script, ":")
	switch {
	case verb == "echo":
		do("", rest, false)
	case verb == "ask":
		do("INPUT_REQUIRED", "", false)
		return
	case j.script == "hold":
		<-ctx.Done()
		return
	case strings.HasPrefix(j.script, "sleep="):
		d, _ := time.ParseDuration(strings.TrimPrefix(j.script, "sleep="))
		if nettest.Pause(ctx, d) != nil {
			return
		}
	default:
		var n, size, delay int
		if _, err := fmt.Sscanf(j.script, "chunks=%d size=%d delay=%dms", &n, &size, &delay); err != nil {
			do("FAILED", "", false)
			return
		}
		for i := range n {
			if f.fault == "events cost what the task has" && i == n*3/4 {
				delay = 100 // much more than a slow machine needs for a chunk
			}
			if nettest.Pause(ctx, time.Duration(delay)*time.Millisecond) != nil || !do("", fmt.Sprintf("%08d%s", i, strings.Repeat("x", size-8)), i > 0) {
				return
			}
		}
	}
	do("COMPLETED", "", false)
}

func (r *replica) canceled(w http.ResponseWriter, j *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j.ended() && r.fault != "a cancel overwrites a result" || r.fault == "cancels may not be repeated" && j.state == "CANCELED" {
		code := -32002
		if r.fault == "cancels may not be repeated" {
			code = -32603
		}
		refuse(w, code, "the task has ended")
		return
	}
	r.add(j, "CANCELED", "", false)
	j.cancel()
	if r.purges {
		r.tasks = slices.DeleteFunc(r.tasks, func(other *job) bool { return other == j })
	}
	answer(w, object{"result": j.shown()})
}

func (r *replica) subscribe(w http.ResponseWriter, req *http.Request, j *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	after, err := strconv.Atoi(req.Header.Get("Last-Event-ID"))
	resumes := err == nil && !r.plain
	if j.ended() && !resumes && r.fault != "subscriptions to ended tasks are accepted" {
		refuse(w, -32004, "the task has ended")
		return
	}
	if !resumes {
		r.stream(w, req, j, true, len(j.log))
		return
	}
	from := max(after-1, 0)
	if r.fault == "a resumed stream misses an event" && after > 0 {
		from++
	}
	r.stream(w, req, j, false, from)
}

// stream writes the task and the events from one on, until the task ends. The fake is locked.
func (r *replica) stream(w http.ResponseWriter, req *http.Request, j *job, opening bool, from int) {
	w.Header().Set("Content-Type", "text/event-stream")
	at := from
	j.readers[&at] = true
	defer delete(j.readers, &at)
	put := func(o object, id int) error {
		body, _ := json.Marshal(object{"jsonrpc": "2.0", "id": 1, "result": o})
		r.mu.Unlock()
		defer r.mu.Lock()
		if !r.plain {
			_, _ = fmt.Fprintf(w, "id: %d\n", id)
		}
		_, err := fmt.Fprintf(w, "data: %s\n\n", body)
		return errors.Join(err, http.NewResponseController(w).Flush())
	}
	if opening && r.fault != "streams do not begin with the task" {
		whole := j.shown()
		if from = len(j.log); put(object{"task": whole}, from+1) != nil {
			return
		}
		if r.fault == "a subscription misses an event" && from > 0 {
			from++
		}
		at = from
	}
	for {
		for at < len(j.log) {
			next := []int{at}
			switch {
			case r.fault == "an event is doubled" && at == 3:
				next = []int{at, at}
			case r.fault == "two events are swapped" && at == 4:
				for at+1 == len(j.log) {
					if r.wait(req.Context(), j) != nil {
						return
					}
				}
				next = []int{at + 1, at}
			}
			for _, i := range next {
				if put(j.log[i], i+2) != nil {
					return
				}
			}
			at = max(at, next[0]) + 1
		}
		if j.ended() && r.fault != "streams stay open" {
			return
		}
		if r.wait(req.Context(), j) != nil {
			return
		}
	}
}

func (r *replica) list(w http.ResponseWriter, p *params, owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var fit []*job
	for i := len(r.tasks) - 1; i >= 0; i-- {
		if j := r.tasks[i]; j.context == p.ContextID && j.owner == owner {
			fit = append(fit, j)
		}
	}
	from := 0
	if r.fault == "pages are counted by offset" {
		from, _ = strconv.Atoi(p.PageToken)
	} else if p.PageToken != "" {
		from = slices.IndexFunc(fit, func(j *job) bool { return j.id == p.PageToken }) + 1
	}
	to := min(from+p.PageSize, len(fit))
	tasks, next := []object{}, ""
	for i, j := range fit[from:to] {
		if r.fault == "a page lacks a task" && i == 2 {
			continue
		}
		tasks = append(tasks, j.shown())
	}
	if to < len(fit) {
		next = fit[to-1].id
		if r.fault == "pages are counted by offset" {
			next = strconv.Itoa(to)
		}
	}
	answer(w, object{"result": object{"tasks": tasks, "nextPageToken": next, "pageSize": p.PageSize, "totalSize": len(fit)}})
}

// push delivers all events of a task to its webhook.
func (r *replica) push(j *job) {
	for at := 0; ; {
		r.mu.Lock()
		if at == len(j.log) || r.fault == "notifications are swapped" && len(j.log) < 5 {
			ended := at == len(j.log) && j.ended()
			err := error(nil)
			if !ended {
				err = r.wait(r.ctx, j)
			}
			r.mu.Unlock()
			if ended || err != nil {
				return
			}
			continue
		}
		i := at
		if r.fault == "notifications are swapped" && len(j.log) > 4 { // by then there are no gaps to wait for
			i = map[int]int{2: 3, 3: 2}[at] + map[bool]int{true: at}[at != 2 && at != 3]
		}
		event := j.log[i]
		r.mu.Unlock()
		if event["artifactUpdate"] != nil && strings.HasPrefix(r.fault, "of statuses ") || at == 0 && r.fault == "webhooks lack the first status" {
			at++
			continue
		}
		body, _ := json.Marshal(event)
		resp, err := r.client.Post(j.hook, "application/json", bytes.NewReader(body))
		accepted := err == nil && resp.StatusCode < 300
		if err == nil {
			resp.Body.Close()
		}
		switch {
		case !accepted && r.fault != "notifications get one attempt":
			_ = nettest.Pause(r.ctx, 20*time.Millisecond)
			if r.ctx.Err() != nil {
				return
			}
		case accepted && r.fault == "a notification is sent twice" && at == 2 && !r.once(), accepted && r.fault == "of statuses one is sent twice" && event["statusUpdate"] != nil && at > 0 && !r.once():
		default:
			at++
		}
	}
}

// once reports whether it was called before.
func (r *replica) once() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.hurt
	r.hurt = true
	return before
}
