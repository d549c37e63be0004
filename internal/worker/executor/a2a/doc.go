// Package a2a is the executor for agents that are A2A servers themselves: Holdfast is their durable front. docs/agents/a2a.md
// has the operator's side.
//
// A run sends its message once, under an id that is the same for every try, and reads the stream of the answer. As soon as
// the server names its task, the run stores that id (the link), before it emits anything. From then on no run sends the
// message again.
//
// A2A has no cursor for streams. So only the stream that answers a send is passed on event by event. After any cut, the
// run reads the server's task instead, compares it with the log of its own, and emits the difference (mirror). This is
// right with every server: it needs neither replay, nor a snapshot that fits a stream, nor subscriptions.
package a2a
