package isolation

import "github.com/holdfast-a2a/holdfast/internal/a2atest"

// wires are all that a caller can ask over.
var wires = append([]*a2atest.Wire{a2atest.V01, a2atest.V02, a2atest.V03, a2atest.V10, a2atest.Unversioned}, a2atest.Wires[4:]...)

// reaches reports whether there is a way to an agent: gRPC of 0.3 has one to the default agent only.
func reaches(w *a2atest.Wire, agent string) bool { return agent == guarded || w != a2atest.GRPC03 }

// creates reports whether a client names the tasks that it makes: then to continue an unknown one is to make it.
func creates(w *a2atest.Wire, d *doing) bool {
	return w.Version == "0.1" && (d.op == a2atest.Send || d.op == a2atest.Stream)
}

// doing is what a caller may do in every version that has the operation.
type doing struct {
	name      string
	op        a2atest.Op
	ofTask    bool   // it names a task, and so somebody's
	inContext bool   // and its context
	position  string // Last-Event-ID
	to        string // how the task stands that its owner does it to
}

var doings = []*doing{
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

// about is what a doing is about. What is not needed is empty.
type about struct {
	agent         string
	task, context string
	config, hook  string // of a webhook: its id and its URL
	text          string // of the message
	token         string // of a page
}

// do does a doing, and shows all of the answer. Headers are names and values; a name may come twice.
func (e *estate) do(w *a2atest.Wire, d *doing, a *about, headers ...string) a2atest.Shown {
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
