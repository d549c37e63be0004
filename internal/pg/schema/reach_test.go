package schema_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// postgres is a PostgreSQL that refuses TLS and the password.
func postgres(t *testing.T, code string) (addr string) {
	t.Helper()
	l := storetest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			backend := pgproto3.NewBackend(conn, conn)
			if m, err := backend.ReceiveStartupMessage(); err == nil {
				if _, tls := m.(*pgproto3.SSLRequest); tls {
					_, _ = conn.Write([]byte("N"))
				} else {
					backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: "refused"})
					_ = backend.Flush()
				}
			}
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

func TestWhyADatabaseIsNotReached(t *testing.T) {
	t.Parallel()
	nobody := nettest.Reserve(t)

	t.Run("wrong password", func(t *testing.T) {
		t.Parallel()
		_, err := schema.Status(t.Context(), "postgres://holdfast@"+postgres(t, "53300")+"/tasks")
		require.ErrorContains(t, err, "raise max_connections")
		addr := postgres(t, "28P01")
		var log bytes.Buffer
		err = schema.Migrate(t.Context(), "postgres://holdfast:wrong@"+addr+"/tasks", slog.New(slog.NewTextHandler(&log, nil)))
		require.EqualError(t, err, "database: tasks as holdfast on "+addr+
			" refuses the connection: refused (28P01); check the URL, the database role and pg_hba.conf")
		require.Empty(t, log.String(), "a retry helps nothing")
		_, err = schema.Status(t.Context(), "postgres://holdfast:wrong@"+addr+"/tasks")
		require.ErrorContains(t, err, "tasks as holdfast on "+addr+" refuses the connection: refused")
		_, err = pgurl.Connect(t.Context(), "postgres://holdfast:wrong@"+addr+"/tasks")
		require.EqualError(t, pgurl.Short(err), addr+" (127.0.0.1): server error: FATAL: refused (SQLSTATE 28P01)")
	})
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		_, err := schema.Status(t.Context(), "postgres://holdfast@"+nobody+"/tasks")
		var unreached *schema.Unreached
		require.ErrorAs(t, err, &unreached)
		require.True(t, strings.HasPrefix(unreached.Detail, "tasks as holdfast on "+nobody+" is not reachable: "), unreached.Detail)
		require.Equal(t, 1, strings.Count(unreached.Detail, "refused"), "the cause once: %s", unreached.Detail)
		require.NotContains(t, err.Error(), "\n")
	})
	other := errors.New("other")
	require.Equal(t, other, schema.Explain(other))
}
