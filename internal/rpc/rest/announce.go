package rest

import "github.com/holdfast-a2a/holdfast/internal/rpc/card"

// Announced is the binding as cards have it. Clients append to the address paths that begin with
// a slash, and those of 0.3 their prefix before.
func Announced() card.Binding {
	return card.Binding{
		Name: "HTTP+JSON", Versions: []string{version10.Version(), version03.Version()},
		Address: func(_, below string) (url, tenant string) { return below, "" },
	}
}
