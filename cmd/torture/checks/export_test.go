package checks

import (
	"context"
	"net"

	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
)

// Over has a run use a network in memory, for its calls and for its receiver of webhooks.
func (o Options) Over(n *nettest.Network) Options {
	o.dial = n.DialContext
	o.listen = func(context.Context, string, string) (net.Listener, error) { return n.Listen(), nil }
	return o
}
