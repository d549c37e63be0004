package rest

import "github.com/holdfast-a2a/holdfast/internal/rpc/card"

// Announced is the binding as cards have it. Clients append to the address paths that begin with
// a slash; those of 0.3 have their prefix.
func Announced() card.Binding {
	return card.Binding{
		Name: "HTTP+JSON", Versions: []string{version10.Version(), version03.Version()},
		Address: func(_, below string) (url, tenant string) { return below, "" },
	}
}
