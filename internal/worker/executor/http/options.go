package http

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// Options say which backend to call, and how. Only URL is required.
type Options struct {
	URL       string            // http or https
	CancelURL string            // is told why something else than the agent has ended its work; empty: nobody is
	Headers   map[string]string // sent with every call, such as Authorization

	// ConnectTimeout bounds connecting, and again the TLS handshake; 0 means 10 seconds.
	ConnectTimeout time.Duration
	// HeaderTimeout bounds the wait for the first byte of the answer. 0 means no own bound: the run timeout applies.
	HeaderTimeout time.Duration
	// MaxEvent is the size in bytes of the largest event, and of an answer that is
	// one JSON document; 0 means 16 MiB. A stream as a whole has no bound.
	MaxEvent int
	// History says what of the conversation to send; the zero History means the default.
	History wire.History
	Observe web.Observer // of each request; nil: nobody
}

func (o *Options) validate() error {
	var problems []error
	complain := func(option, format string, args ...any) {
		problems = append(problems, fmt.Errorf("http: %s: %s", option, fmt.Sprintf(format, args...)))
	}
	web.CheckURL("url", o.URL, complain)
	if o.CancelURL != "" {
		web.CheckURL("cancel_url", o.CancelURL, complain)
	}
	web.CheckHeaders(o.Headers, ours, complain)
	return errors.Join(problems...)
}

func ours(name string) bool { return strings.HasPrefix(name, "Holdfast-") }

func (o Options) withDefaults() Options {
	o.ConnectTimeout, o.MaxEvent = cmp.Or(o.ConnectTimeout, 10*time.Second), cmp.Or(o.MaxEvent, wire.DefaultMaxEvent)
	return o
}
