//go:build interop

// Package interop runs the official A2A clients, as their registries have them, against two replicas of the built server.
// README.md has the contract between this harness and the clients.
package interop

// exception is something that does not pass, and why that is not ours to mend. An empty binding or scenario means all of
// them. Each entry must still be needed: one that nothing matches, or whose scenario passes, fails the test.
type exception struct {
	client, binding, scenario string
	why                       string
}

// unsupported are bindings that a client does not have; it is not run over these.
var unsupported = []exception{
	{client: "go-0.3", binding: "rest", why: "a2a-go v0.3.15: a2aclient has grpc.go and jsonrpc.go, and no transport for HTTP+JSON"},
}

// absences are calls that a client does not have; it must report them as absent.
var absences = []exception{}

// defects are faults of clients, with evidence; these scenarios must fail.
var defects = []exception{
	{
		client: "go-0.3", binding: "jsonrpc", scenario: "list",
		why: "calls tasks/list (a2a-go v0.3.15, internal/jsonrpc/jsonrpc.go:35), which no version has on JSON-RPC: 0.3.0 lists over HTTP+JSON only",
	},
}
