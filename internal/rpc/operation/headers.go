package operation

import (
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
)

// The headers that name extensions: of 1.0, and of 0.2.4 and later.
const (
	extensions10 = "A2a-Extensions"
	extensions03 = "X-A2a-Extensions"
)

// ReadHeaders takes from the headers of a request what is the same over JSON-RPC and
// HTTP+JSON.
func (r *Request) ReadHeaders(h http.Header) {
	r.IdempotencyKey = h.Get("Idempotency-Key")
	r.LastEventID = h.Get("Last-Event-ID")
	r.Extensions = extensions(h)
	r.ExactTotal = slices.ContainsFunc(h["Prefer"], func(list string) bool {
		return strings.Contains(strings.ReplaceAll(list, " ", ""), "count=exact")
	})
}

// extensions are the URIs that a client names, in the header of either version.
func extensions(h http.Header) []string {
	var all []string
	for _, name := range [...]string{extensions10, extensions03} {
		for _, list := range h[name] {
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
func (r *Request) Echo(h http.Header) {
	if len(r.active) == 0 {
		return
	}
	name := extensions10
	if r.Codec.Version() == v03.Version {
		name = extensions03
	}
	h.Set(name, strings.Join(r.active, ", "))
}
