package isolation

import "github.com/holdfast-a2a/holdfast/internal/test/a2atest"

// wires are all versions and bindings.
var wires = append([]*a2atest.Wire{a2atest.V01, a2atest.V02, a2atest.V03, a2atest.V10, a2atest.Unversioned}, a2atest.Wires[4:]...)

// reaches reports whether a wire reaches an agent: gRPC of 0.3 reaches the default agent only.
func reaches(w *a2atest.Wire, agent string) bool { return agent == guarded || w != a2atest.GRPC03 }

// creates reports whether a message for an unknown task creates it, because clients choose the ids.
func creates(w *a2atest.Wire, d *clientOp) bool {
	return w.Version == "0.1" && (d.op == a2atest.Send || d.op == a2atest.Stream)
}

// clientOp is an operation of callers, in every version that has it.
type clientOp struct {
	name      string
	op        a2atest.Op
	ofTask    bool   // it names a task
	inContext bool   // and its context
	position  string // Last-Event-ID
	to        string // the state of the tasks that the owner does it to
}

var clientOps = []*clientOp{
	{name: "send", op: a2atest.Send},
	{name: "send and follow", op: a2atest.Stream},
	{name: "continue", op: a2atest.Send, ofTask: true, to: "parked"},
	{name: "continue in its context", op: a2atest.Send, ofTask: true, inContext: true, to: "parked"},
	{name: "continue and follow", op: a2atest.Stream, ofTask: true, to: "parked"},
	{name: "get", op: a2atest.Get, ofTask: true, to: "ended"},
	{name: "ask for the headers", op: a2atest.Head, ofTask: true, to: "ended"},
	{name: "list", op: a2atest.List},
	{name: "cancel", op: a2atest.Cancel, ofTask: true, to: "running"},
	{name: "subscribe", op: a2atest.Subscribe, ofTask: true, to: "running"},
	{name: "resume", op: a2atest.Subscribe, ofTask: true, position: "1", to: "running"},
	{name: "resume behind its end", op: a2atest.Subscribe, ofTask: true, position: "1000", to: "running"},
	{name: "set a webhook", op: a2atest.SetHook, ofTask: true, to: "parked"},
	{name: "clear the webhook", op: a2atest.ClearHook, ofTask: true, to: "parked"},
	{name: "get a webhook", op: a2atest.GetHook, ofTask: true, to: "parked"},
	{name: "list webhooks", op: a2atest.ListHooks, ofTask: true, to: "parked"},
	{name: "delete a webhook", op: a2atest.DeleteHook, ofTask: true, to: "parked"},
	{name: "get the extended card", op: a2atest.Card},
}

// about has the arguments of a clientOp. Unused ones are empty.
type about struct {
	agent         string
	task, context string
	config, hook  string // of a webhook: its id and its URL
	text          string // of the message
	token         string // of a page
}

// do does a clientOp, and returns the whole answer. Headers are names and values; a name may come twice.
func (e *estate) do(w *a2atest.Wire, d *clientOp, a *about, headers ...string) a2atest.Shown {
	e.T.Helper()
	args := &a2atest.Args{
		Agent: a.agent, Task: a.task, Context: a.context, ID: "m", Page: a.token, After: d.position, Header: headers,
	}
	switch d.op {
	case a2atest.Send, a2atest.Stream:
		args.Texts = []string{a.text}
	default:
		args.Config, args.Hook = a.config, a.hook
	}
	return e.Show(w, d.op, args)
}
