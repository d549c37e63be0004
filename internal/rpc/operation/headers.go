package operation

import (
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
)

// The headers that name extensions: of 1.0, and of 0.2.4 and later.
const (
	extensions10 = "A2a-Extensions"
	extensions03 = "X-A2a-Extensions"
)

// Headers of requests, which are metadata in gRPC.
const (
	VersionHeader     = "A2a-Version"
	IdempotencyKey    = "Idempotency-Key"
	LastEventID       = "Last-Event-Id"
	preferHeader      = "Prefer"
	preferExactTotals = "count=exact"
)

// ReadHeaders takes from the headers of a request what is the same in every binding.
// values gives those of one name, in the form of a canonical HTTP header.
func (r *Request) ReadHeaders(values func(name string) []string) {
	for _, h := range [...]struct{ name, shown string }{
		{VersionHeader, "A2A-Version"}, {IdempotencyKey, IdempotencyKey}, {LastEventID, "Last-Event-ID"},
	} {
		if all := values(h.name); len(all) > 1 && len(slices.Compact(slices.Clone(all))) > 1 {
			r.ambiguous = h.shown
		}
	}
	r.IdempotencyKey = First(values(IdempotencyKey))
	r.LastEventID = First(values(LastEventID))
	r.Extensions = extensions(values)
	r.ExactTotal = slices.ContainsFunc(values(preferHeader), func(list string) bool {
		return strings.Contains(strings.ReplaceAll(list, " ", ""), preferExactTotals)
	})
}

// First is the first of the values that a header has, or "".
func First(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// extensions are the URIs that a client names, in the header of either version.
func extensions(values func(name string) []string) []string {
	var all []string
	for _, name := range [...]string{extensions10, extensions03} {
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
	name := extensions10
	if r.Codec.Version() == v03.Version {
		name = extensions03
	}
	set(name, strings.Join(r.active, ", "))
}
