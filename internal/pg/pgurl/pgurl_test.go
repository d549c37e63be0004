package pgurl_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

func TestURLHasPriority(t *testing.T) {
	t.Parallel()
	cfg, _, err := pgurl.Parse("postgres://localhost/x")
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, cfg.ConnectTimeout)
	require.NotNil(t, cfg.ValidateConnect)
	pool, err := pgurl.ParsePool("postgres://localhost/x?connect_timeout=7&target_session_attrs=any")
	require.NoError(t, err)
	require.Equal(t, 7*time.Second, pool.ConnConfig.ConnectTimeout)
	require.Nil(t, pool.ConnConfig.ValidateConnect)
	_, _, err = pgurl.Parse("postgres://localhost:x/")
	require.ErrorContains(t, err, "database url")
}

// Each host has its own time to answer, so a silent first one does not use up the second one's.
func TestSecondHostAfterSilentOne(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close() //nolint:errcheck // the end of the test
	proxy := pgproxytest.New(t, storetest.New(t).URL)
	url := strings.Replace(proxy.URL, "127.0.0.1:", silent.Addr().String()+",127.0.0.1:", 1)
	conn, err := pgurl.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background()) //nolint:errcheck // the database goes next
	require.NoError(t, conn.Ping(t.Context()))
}

func TestKernelBoundsAcknowledgements(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has TCP_USER_TIMEOUT")
	}
	conn, err := pgurl.Connect(t.Context(), pgproxytest.New(t, storetest.New(t).URL).URL)
	require.NoError(t, err)
	defer conn.Close(context.Background()) //nolint:errcheck // the database goes next
	raw, err := conn.PgConn().Conn().(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	var ms int
	require.NoError(t, raw.Control(func(fd uintptr) { ms, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, 0x12) }))
	require.NoError(t, err)
	require.Equal(t, 10_000, ms)
}
