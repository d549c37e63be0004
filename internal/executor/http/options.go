package http

import (
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/executor/wire"
	"github.com/holdfast-a2a/holdfast/internal/outbound"
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
}

func (o *Options) validate() error {
	var problems []error
	complain := func(option, format string, args ...any) {
		problems = append(problems, fmt.Errorf("http: %s: %s", option, fmt.Sprintf(format, args...)))
	}
	if o.URL == "" {
		complain("url", "is required")
	} else {
		checkURL("url", o.URL, complain)
	}
	if o.CancelURL != "" {
		checkURL("cancel_url", o.CancelURL, complain)
	}
	outbound.CheckHeaders(o.Headers, ours, complain)
	if o.ConnectTimeout < 0 {
		complain("connect_timeout", "must not be negative")
	}
	if o.HeaderTimeout < 0 {
		complain("header_timeout", "must not be negative")
	}
	if o.MaxEvent < 0 {
		complain("max_event", "must not be negative")
	}
	return errors.Join(problems...)
}

func checkURL(option, value string, complain func(option, format string, args ...any)) {
	switch u, err := url.Parse(value); {
	case err != nil:
		complain(option, "is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		complain(option, "must begin with http:// or https://")
	case u.Host == "":
		complain(option, "has no host")
	}
}

// ours reports whether a configuration cannot set a header. Those are headers that Holdfast sets, and headers of the
// connection.
func ours(name string) bool {
	switch name = textproto.CanonicalMIMEHeaderKey(name); name {
	case "Accept", "Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Host",
		"Idempotency-Key", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	default:
		return strings.HasPrefix(name, "Holdfast-")
	}
}

func (o Options) withDefaults() Options {
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = 10 * time.Second
	}
	if o.MaxEvent == 0 {
		o.MaxEvent = wire.DefaultMaxEvent
	}
	return o
}
