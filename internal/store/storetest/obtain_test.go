package storetest

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tests that run in a container reach a sibling at its own address, and not at the port that it has on the machine.
func TestAContainerIsReachedAtEitherAddress(t *testing.T) {
	t.Parallel()
	db := New(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, and never answers
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	published := "postgres://postgres@" + silent.Addr().String() + "/postgres"

	url, err := reachable(t.Context(), published, db.URL)
	require.NoError(t, err)
	require.Equal(t, db.URL, url)

	_, err = reachable(t.Context(), published)
	require.ErrorContains(t, err, "TESTCONTAINERS_HOST_OVERRIDE")
}
