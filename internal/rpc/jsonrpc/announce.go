package jsonrpc

import (
	"github.com/holdfast-a2a/holdfast/internal/rpc/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
)

// Announced is the binding as cards have it. 0.1 has no interfaces in its cards, and its
// clients look for no others.
func Announced() card.Binding {
	b := card.Binding{
		Name:    "JSONRPC",
		Address: func(_, below string) (url, tenant string) { return below + "/", "" },
	}
	for _, c := range registry.All() {
		if c.Version() != "0.1" {
			b.Versions = append(b.Versions, c.Version())
		}
	}
	return b
}
