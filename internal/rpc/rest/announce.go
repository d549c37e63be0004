package rest

import (
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/httpjson"
)

// Announced returns the binding as cards list it. Clients append paths to the address. These paths
// begin with a slash, and with the version's prefix if it has one.
func Announced() card.Binding {
	b := card.Binding{
		Name:    "HTTP+JSON",
		Address: func(_, below string) (url, tenant string) { return below, "" },
	}
	for _, v := range httpjson.Versions {
		b.Versions = append(b.Versions, v.Traits().Version)
	}
	return b
}
