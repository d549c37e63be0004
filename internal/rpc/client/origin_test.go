package client

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/connectivity"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
)

func TestConnectionsCloseWithoutCalls(t *testing.T) {
	t.Parallel()
	const address = "http://127.0.0.1:1"
	c := &Connections{Connect: time.Second, Agent: "test"}
	var releases []func()
	for range maxCalls + 1 {
		_, release, err := c.take(address)
		require.NoError(t, err)
		releases = append(releases, release)
	}
	open := c.open[address]
	require.Len(t, open, 2)
	require.Equal(t, []int{maxCalls, 1}, []int{open[0].calls, open[1].calls})
	releases[maxCalls]()
	releases[maxCalls]() // a second time
	require.Equal(t, []int{maxCalls, 0}, []int{open[0].calls, open[1].calls})

	full, unused := open[0], open[1]
	c.drop(address, full)
	require.NotEqual(t, connectivity.Shutdown, full.conn.GetState(), "it has calls")
	c.drop(address, unused)
	require.Equal(t, connectivity.Shutdown, unused.conn.GetState())
	require.Equal(t, []*connection{full}, c.open[address])

	conn, again, err := c.take(address)
	require.NoError(t, err)
	require.NotSame(t, unused.conn, conn)
	again()
	for _, release := range releases {
		release()
	}
	for _, of := range slices.Clone(c.open[address]) {
		c.drop(address, of)
	}
	require.Empty(t, c.open)

	_, last, err := c.take(address)
	require.NoError(t, err)
	late := c.open[address][0]
	c.Close()
	last()
	require.False(t, late.close.Stop(), "nothing waits after Close")
	c.drop(address, late) // as a timer does that has fired before
}

// The credential goes only to the origin of the card, or over gRPC to another port of its host. A card that came over TLS cannot send it
// over a connection without it.
func TestPlace(t *testing.T) {
	t.Parallel()
	for binding, all := range map[string]map[string]string{
		GRPC: {
			"h:1": "https://h:1", "https://h": "https://h", "grpcs://h:1": "https://h:1", "http://h:1": "without TLS", "grpc://h:1": "without TLS",
			"https://h:1/a2a": "https://h:1", "dns:///h:1": "https://h:1", "other:1": "another host", "https://other:1": "another host",
			"https://": "no host:port", "https://u:p@h:1": "no host:port", "unix:///tmp/x": "no host:port",
		},
		JSONRPC: {
			"https://H:443/a2a": "https://H:443/a2a", "https://h/x?y": "https://h/x?y", "https://h:1/": "another host", "http://h/": "another host",
			"https://h.example/": "another host", ":": "another host",
		},
	} {
		for named, want := range all {
			got, err := Place(client.Find("1.0", binding), named, "https://h/card.json", "a2a.url")
			if err != nil {
				require.ErrorAs(t, err, new(*PlaceError))
				got = err.Error()
			}
			require.Contains(t, got, want, named)
		}
	}
}
