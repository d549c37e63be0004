package cli

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/upkeep/retention"
)

// fakeAPI is an admin API with one task and what is beside it, for what verbs print. (integration/operators runs them on real ones.)
type fakeAPI struct {
	routes map[string]route
	asked  []string // the queries and the bodies
	closed bool
}

// route answers a request with a document or with an error.
type route func(r *http.Request) (any, error)

// ServeHTTP implements http.Handler.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	for pattern, answer := range f.routes {
		mux.HandleFunc(strings.Replace(pattern, " ", " /admin/v1", 1), func(w http.ResponseWriter, r *http.Request) {
			doc, err := answer(r)
			if err != nil {
				reason := map[task.Kind]string{task.NotFound: "not_found", task.Terminal: "conflict", task.Busy: "conflict", task.Unavailable: "unavailable"}[task.KindOf(err)]
				w.WriteHeader(http.StatusTeapot)
				doc = map[string]string{"title": "refused", "reason": reason, "detail": err.Error()}
			}
			_ = json.NewEncoder(w).Encode(doc)
		})
	}
	mux.ServeHTTP(w, r)
}

// Close implements OperatorAPI.
func (f *fakeAPI) Close() { f.closed = true }

var storedAt = time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.FixedZone("", 3600))

func storedTask() (header task.Task, events []task.Event) {
	id, err := task.ParseID("0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f")
	if err != nil {
		panic(err)
	}
	header = task.Task{ID: id, PublicID: "order-7", Agent: "weather"}
	say := func(role task.Role, text string) *task.Message {
		return &task.Message{ID: "m-" + text, Role: role, Parts: []task.Part{task.Text(text)}}
	}
	events = []task.Event{
		{Kind: task.EventMessage, Message: say(task.RoleUser, "Oslo?")},
		{Kind: task.EventStatus, Attempt: 1, State: task.StateWorking, Message: say(task.RoleAgent, "looking")},
		{Kind: task.EventRun, Attempt: 1, Run: &task.RunNote{Outcome: task.RunLost, Worker: "w1", Error: "lease expired"}},
		{Kind: task.EventArtifact, Attempt: 2, Last: true, Artifact: &task.Artifact{ID: "a1", Name: "forecast", Parts: []task.Part{
			task.Text("sun"),
			{Kind: task.PartData, Data: json.RawMessage(`{"t":-3.0}`)},
			{Kind: task.PartRaw, Raw: []byte{1, 2, 3}, Filename: "map.png", MediaType: "image/png"},
			{Kind: task.PartURL, URL: "https://example.com/map"},
		}}},
		{Kind: task.EventStatus, Attempt: 2, State: task.StateCompleted},
	}
	for i := range events {
		events[i].Task, events[i].Seq, events[i].At = id, task.Seq(i+1), storedAt.Add(time.Duration(i)*time.Second)
	}
	return header, events
}

// idOf parses an id.
func idOf(text string) (id task.ID) {
	if err := id.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return id
}

// shownTask is the stored task with a log of some length.
func shownTask(last int, state task.State) shown.Task {
	return shown.Task{
		ID: idOf("0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f"), TaskID: "order-7", Agent: "weather", Owner: "alice", ContextID: "c1", Dialect: "0.1",
		State: state, CreatedAt: storedAt.UTC(), StatusAt: storedAt.UTC(), LastSeq: task.Seq(last), TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
	}
}

// shownEvents is a log as the admin API has it.
func shownEvents(events []task.Event) (page shown.LogPage) {
	for i := range events {
		e := &events[i]
		v := shown.Event{AdminEvent: store.AdminEvent{
			Seq: e.Seq, Kind: e.Kind, At: e.At.UTC(), Attempt: e.Attempt, State: e.State, Append: e.Append, Last: e.Last, Payload: json.RawMessage(store.EncodePayload(e)),
		}}
		if e.Artifact != nil {
			v.ArtifactID = e.Artifact.ID
		}
		page.Events = append(page.Events, v)
	}
	return page
}

// after returns the events of a log after those that a request knows.
func after(r *http.Request, events []task.Event) []task.Event {
	known, _ := strconv.Atoi(r.URL.Query().Get("after"))
	return events[min(known, len(events)):]
}

func newFake() *fakeAPI {
	f := &fakeAPI{}
	const key = "mzxw6ytboi5dkmrq"
	none := func(what string) error { return task.Errorf(task.NotFound, "%s", what) }
	found := func(answer route) route {
		return func(r *http.Request) (any, error) {
			if id := r.PathValue("id"); id != "order-7" && id != shownTask(5, task.StateCompleted).ID.String() {
				return nil, none("no task " + id)
			}
			return answer(r)
		}
	}
	get := func(doc any) route { return func(*http.Request) (any, error) { return doc, nil } }
	whole := shownTask(5, task.StateCompleted)
	whole.StatusAt = storedAt.UTC().Add(4 * time.Second)
	whole.Line = &store.StatusLine{Situation: "sleeping", Text: "Sleeps", Since: whole.StatusAt, Next: "It wakes", NextAt: whole.StatusAt.Add(time.Hour), TurnOf: "nobody"}
	did := func(outcome string) route {
		return found(get(map[string]any{"outcome": outcome, "exported_lines": 3, "task": whole}))
	}
	two, later := int64(2), storedAt.Add(time.Hour)
	agents := []*shown.Agent{
		{Name: "weather", Default: true, Kind: "worker", Concurrency: 4, MaxAttempts: 5, AgentHealth: store.AgentHealth{Health: store.HealthHealthy, Workers: &two}, Queue: &store.QueueDepth{Waiting: 12, Running: 4, Timers: 1, Calls: 2, Parked: 3, OldestSeconds: 192.34}},
		{
			Name: "maps", Kind: "http", Concurrency: 256, MaxAttempts: 3, Queue: &store.QueueDepth{OldestSeconds: 0.25},
			AgentHealth: store.AgentHealth{Health: store.HealthAway, Since: storedAt.UTC(), Reason: "connection refused"},
		},
		{Name: "gone", AgentHealth: store.AgentHealth{Health: store.HealthNoWorker}, Queue: &store.QueueDepth{Waiting: 1}},
	}
	from := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	worker := func(n string) task.ID { return idOf(n + "000000-0000-0000-0000-000000000000") }
	heads := []store.AuditHead{{Chain: 1, Length: 7, Head: "ab01"}, {Chain: 2, Length: 3, Head: "cd02"}}
	f.routes = map[string]route{
		"GET /tasks": func(r *http.Request) (any, error) {
			f.asked = append(f.asked, r.URL.RawQuery)
			t := whole
			t.Tenant, t.StatusAt = "acme", storedAt.UTC()
			return shown.TasksPage{Tasks: []shown.Task{t}}, nil
		},
		"GET /tasks/{id}": found(get(shown.TaskDetail{Task: whole, Metadata: json.RawMessage(`{"n":1.0}`)})),
		"GET /tasks/{id}/log": found(func(r *http.Request) (any, error) {
			_, events := storedTask()
			return shownEvents(after(r, events)), nil
		}),
		"GET /tasks/{id}/lineage": found(get(shown.Lineage{CalledBy: worker("09"), CallID: "trip", Calls: []store.CallRow{
			{ID: "1", Agent: "flights", Task: worker("02"), Result: task.StateCompleted, CalledAt: storedAt.UTC()},
			{ID: "2", Agent: "hotels", Task: worker("03"), CalledAt: storedAt.UTC()},
			{ID: "3", Agent: "nobody", Task: worker("04"), Result: task.StateRejected, Error: `there is no agent "nobody"`, CalledAt: storedAt.UTC()},
		}})),
		"POST /tasks/{id}/cancel": did("ended"),
		"POST /tasks/{id}/retry": found(func(*http.Request) (any, error) {
			return nil, task.Errorf(task.Terminal, "the task is completed: there is nothing to retry")
		}),
		"POST /tasks/{id}/hold":    did("held"),
		"POST /tasks/{id}/release": did("released"),
		"POST /tasks/{id}/purge":   did("purged"),
		"GET /webhooks":            get(shown.WebhooksPage{Webhooks: []shown.Push{{TaskID: "order-7", Host: "hooks.example.com:443"}, {TaskID: "order-7", Host: "hooks.example.com:443"}}}),
		"GET /tasks/{id}/webhooks": found(get(shown.WebhooksPage{Webhooks: []shown.Push{{ConfigID: "audit", Host: "hooks.example.com:443"}}})),
		"GET /agents":              get(shown.Agents{Agents: agents}),
		"GET /agents/{name}": func(r *http.Request) (any, error) {
			for _, a := range agents {
				if a.Name == r.PathValue("name") {
					return shown.AgentDetail{Agent: a}, nil
				}
			}
			return nil, none("no agent of the configuration has this name")
		},
		"POST /keys": func(r *http.Request) (any, error) {
			k := shown.Key{APIKey: store.APIKey{ID: key, CreatedAt: storedAt}, Key: "hfk_mzxw6ytboi5dkmrq_secret", State: "valid"}
			err := json.NewDecoder(r.Body).Decode(&k)
			if k.Name != "" {
				k.ExpiresAt = storedAt.Add(time.Hour)
			}
			return k, err
		},
		"GET /keys": get(shown.KeysPage{Keys: []shown.Key{
			{APIKey: store.APIKey{ID: key, Subject: "alice", Scopes: []string{}, CreatedAt: storedAt, LastUsedAt: later}, State: "valid"},
			{APIKey: store.APIKey{
				ID: "aaaaaaaaaaaaaaaa", Subject: "ci", Tenant: "acme", Scopes: []string{"weather:use", "x"}, Name: "build", CreatedAt: storedAt, ExpiresAt: storedAt.Add(time.Minute),
			}, State: "expired"},
		}}),
		"POST /keys/{id}/revoke": func(r *http.Request) (any, error) {
			if r.PathValue("id") != key {
				return nil, none("no key has this id")
			}
			return shown.Key{APIKey: store.APIKey{ID: key, Subject: "alice", Scopes: []string{}, CreatedAt: storedAt, RevokedAt: later}, State: "revoked"}, nil
		},
		"GET /workers": get(shown.Workers{Workers: []store.RemoteWorker{
			{ID: worker("01"), Name: "gpu-1", Version: "3f2c91e", SDK: "holdfast-agent/0.1.0", Agents: []string{"draw", "paint"}, State: "connected", Replica: "h/1", FirstSeen: storedAt.UTC(), LastSeen: storedAt.UTC().Add(time.Hour), Running: 2},
			{ID: worker("02"), Version: "3f2c91e", Agents: []string{}, State: "retired", FirstSeen: storedAt.UTC(), LastSeen: storedAt.UTC(), RetiredAt: storedAt.UTC().Add(time.Minute)},
			{ID: worker("03"), Agents: []string{}, State: "gone", FirstSeen: storedAt.UTC(), LastSeen: storedAt.UTC()},
		}}),
		"POST /workers/{id}/retire": func(r *http.Request) (any, error) {
			if r.PathValue("id") != worker("01").String() {
				return nil, none("no worker has this id")
			}
			return map[string]string{"id": r.PathValue("id")}, nil
		},
		"GET /audit/verify": get(shown.Verified{Heads: heads}),
		"POST /audit/verify": func(r *http.Request) (any, error) {
			var body struct{ Heads []store.AuditHead }
			err := json.NewDecoder(r.Body).Decode(&body)
			return shown.Verified{Heads: heads, Broken: []shown.BrokenChain{{Chain: 2, Row: body.Heads[1].Length + 1, Problem: "the chain ends before this row"}}}, err
		},
		"GET /retention/plan": get(shown.Plan{Steps: []retention.Step{
			{What: "tasks", How: "drop", From: from, To: from.AddDate(0, 1, 0), Tasks: 120_000, Held: 2, Bytes: 3 << 30},
			{What: "artifacts", How: "delete", Agent: "weather", Tasks: 7, Bytes: 999},
		}}),
		"POST /jobs": func(r *http.Request) (any, error) {
			var body map[string]any
			err := json.NewDecoder(r.Body).Decode(&body)
			text, _ := json.Marshal(body["filter"])
			f.asked = append(f.asked, string(text))
			return shown.Job{ID: worker("07"), Action: "purge", State: "done", Matched: 13, Done: 12, Skipped: 1}, err
		},
	}
	return f
}
