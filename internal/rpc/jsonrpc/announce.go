package jsonrpc

import (
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
)

// Announced returns the binding as cards list it.
func Announced() card.Binding {
	b := card.Binding{
		Name:    "JSONRPC",
		Address: func(_, below string) (url, tenant string) { return below + "/", "" },
	}
	for _, c := range registry.All() {
		if c.Traits().Interfaces {
			b.Versions = append(b.Versions, c.Traits().Version)
		}
	}
	return b
}
