package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// Options say which model answers, and how. Only BaseURL and Model are required.
type Options struct {
	BaseURL string // below it lies chat/completions or responses
	Model   string

	Responses bool // call the Responses API instead of Chat Completions

	APIKey  *secrets.Source   // sent as a bearer token; nil sends none
	Headers map[string]string // sent with every call

	System     string                     // the first message of every conversation; empty sends none
	Parameters map[string]json.RawMessage // further members of the request, such as temperature; null removes one of ours
	History    wire.History               // what of the conversation to send; the zero History means that of the task
	Whole      bool                       // ask for the answer in one piece instead of a stream
	Reasoning  bool                       // show what the model reasons as an artifact of its own

	Tools        []ToolServer
	Agents       []AgentTool
	MaxToolCalls int           // in one turn; 0 means 50
	ToolTimeout  time.Duration // bounds a call, and the connection to a server of tools; 0 means a minute

	ConnectTimeout time.Duration // bounds connecting, and again the TLS handshake; 0 means 10 seconds
	HeaderTimeout  time.Duration // bounds the wait for the first byte of an answer; 0 means 10 minutes
	IdleTimeout    time.Duration // bounds the silence within an answer; 0 means 5 minutes
	MaxEvent       int           // bytes of an event of a stream, and of a whole answer; 0 means 16 MiB

	Observe      web.Observer // of each request to the model; nil: nobody
	ObserveTools web.Observer // of each request to a server of tools with an address; nil: nobody

	Log *slog.Logger // nil discards
}

// reserved are the members of a request that only the executor sets, for each API.
var reserved = map[bool][]string{
	false: {"model", "messages", "stream", "tools", "n"},
	true:  {"model", "input", "instructions", "stream", "background", "previous_response_id", "conversation"},
}

func (o *Options) validate() error {
	var problems []error
	complain := func(option, format string, args ...any) {
		problems = append(problems, fmt.Errorf("openai: %s: %s", option, fmt.Sprintf(format, args...)))
	}
	web.CheckURL("base_url", o.BaseURL, complain)
	if _, err := web.Credential(context.Background(), o.APIKey); err != nil {
		complain("api_key", "%v", err)
	}
	web.CheckHeaders(o.Headers, nil, complain)
	for _, name := range slices.Sorted(maps.Keys(o.Parameters)) {
		switch value := o.Parameters[name]; {
		case slices.Contains(reserved[o.Responses], name):
			complain("parameters."+name, "is set by Holdfast; remove it")
		case !json.Valid(value):
			complain("parameters."+name, "is not JSON")
		case name == "tools" && json.Unmarshal(value, &[]any{}) != nil:
			complain("parameters.tools", "is not a list")
		}
	}
	return errors.Join(problems...)
}

func (o Options) withDefaults() Options {
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 10*time.Second)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, 10*time.Minute)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 5*time.Minute)
	o.MaxToolCalls = cmp.Or(o.MaxToolCalls, 50)
	o.ToolTimeout = cmp.Or(o.ToolTimeout, time.Minute)
	o.MaxEvent = cmp.Or(o.MaxEvent, wire.DefaultMaxEvent)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
