package a2a

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/connectivity"

	"github.com/holdfast-a2a/holdfast/internal/outbound"
)

func TestConnectionsCloseWithoutCalls(t *testing.T) {
	t.Parallel()
	const address = "http://127.0.0.1:1"
	c := &connections{connect: time.Second, agent: "test"}
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
}

// A card that came over TLS cannot send the credential over a connection without it.
func TestCardsOverTLSKeepTLS(t *testing.T) {
	t.Parallel()
	for named, want := range map[string]string{
		"h:1": "https://h:1", "https://h": "https://h", "grpcs://h:1": "https://h:1", "http://h:1": "without TLS", "grpc://h:1": "without TLS",
	} {
		got, err := outbound.RPCAddress(named, "https://h/card.json", "a2a.url")
		if err != nil {
			got = err.Error()
		}
		require.Contains(t, got, want, named)
	}
}
