package task

import "encoding/json"

// Request has the facts about a request that its agent may need, besides the message. They are stored with the message.
type Request struct {
	Metadata    json.RawMessage // of a request that continued a task; that of the first request is the task's
	OutputModes []string        // media types that the client can read; none: any
	Extensions  []string        // URIs of the extensions in force
	Scopes      []string        // of the caller
	Traceparent string          // W3C Trace Context of the request, or ""
	Tracestate  string          // that belongs to Traceparent, or ""
}

// Empty reports whether there is nothing to store.
func (r *Request) Empty() bool {
	return r == nil || r.Metadata == nil && len(r.OutputModes) == 0 && len(r.Extensions) == 0 && len(r.Scopes) == 0 && r.Traceparent == ""
}
