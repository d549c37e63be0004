package dispatch

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

// Request headers. In gRPC they are metadata.
const (
	VersionHeader     = "A2a-Version"
	IdempotencyKey    = "Idempotency-Key"
	LastEventID       = "Last-Event-Id"
	preferHeader      = "Prefer"
	requestIDHeader   = "X-Request-Id"
	preferExactTotals = "count=exact"
)

// ReadHeaders reads the headers that mean the same in every binding. values returns the values of
// one header, by its canonical HTTP name.
func (r *Request) ReadHeaders(values func(name string) []string) {
	for _, h := range [...]struct{ name, shown string }{
		{VersionHeader, "A2A-Version"}, {IdempotencyKey, IdempotencyKey}, {LastEventID, "Last-Event-ID"},
	} {
		if all := values(h.name); len(all) > 1 && len(slices.Compact(slices.Clone(all))) > 1 {
			r.ambiguous = h.shown
		}
	}
	r.header = values
	r.IdempotencyKey = First(values(IdempotencyKey))
	r.LastEventID = First(values(LastEventID))
	r.Extensions = extensions(values)
	r.trace = tracing.ReadContext(values)
	r.requestID = plainID(First(values(requestIDHeader)))
	r.ExactTotal = slices.ContainsFunc(values(preferHeader), func(list string) bool {
		return strings.Contains(strings.ReplaceAll(list, " ", ""), preferExactTotals)
	})
}

// plainID returns an id for the log, or "" if it is longer than 128 bytes or has other characters than ids have.
func plainID(s string) string {
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.:=/+", r)
	}
	if len(s) > 128 || strings.ContainsFunc(s, other) {
		return ""
	}
	return s
}

// maxForwarded bounds the forwarded headers of a request, names and values together, in bytes.
const maxForwarded = 16 << 10

// forwarded returns those of a client's headers that its agent gets.
func (r *Request) forwarded(names []string) (task.Forwarded, error) {
	var out task.Forwarded
	size := 0
	for _, name := range names {
		values := slices.Compact(slices.Clone(r.header(name)))
		if len(values) == 0 {
			continue
		}
		if size += len(name) + len(values[0]); size > maxForwarded {
			return nil, task.InvalidField(name, "is forwarded to the agent, and makes the forwarded headers longer than %d bytes", maxForwarded)
		}
		switch {
		case len(values) > 1:
			return nil, task.InvalidField(name, "is given more than once")
		case !httpguts.ValidHeaderFieldValue(values[0]) || !utf8.ValidString(values[0]):
			return nil, task.InvalidField(name, "is forwarded to the agent, so it must be UTF-8 without control characters")
		}
		if out == nil {
			out = task.Forwarded{}
		}
		out[name] = values[0]
	}
	return out, nil
}

// First returns the first value of a header, or "".
func First(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// extensions returns the URIs that a client names, in either header.
func extensions(values func(name string) []string) []string {
	var all []string
	for _, name := range [...]string{dialect.ExtensionsHeader, dialect.OldExtensionsHeader} {
		for _, list := range values(name) {
			for uri := range strings.SplitSeq(list, ",") {
				if uri = strings.TrimSpace(uri); uri != "" {
					all = append(all, uri)
				}
			}
		}
	}
	return all
}

// Echo tells the client which of its extensions are in force.
func (r *Request) Echo(set func(name, value string)) {
	if len(r.active) == 0 {
		return
	}
	set(r.Codec.Traits().EchoHeader, strings.Join(r.active, ", "))
}
