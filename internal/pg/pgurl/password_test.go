package pgurl_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Each connection has the password of its time, whether it is one of a pool or a single one.
func TestPasswordIsReadForEachConnection(t *testing.T) {
	t.Parallel()
	server := storetest.Server(t, map[string]string{"fsync": "off"})
	plain := server.WithPassword("app", "first")
	file := filepath.Join(t.TempDir(), "password")
	passfile := file + ".pgpass"
	write := func(password string) {
		require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
		require.NoError(t, os.WriteFile(passfile, []byte("*:*:*:app:"+password+"\n"), 0o600))
	}
	write("first")
	for name, url := range map[string]string{
		"a file":    pgurl.WithPassword(plain, secrets.File(file)),
		"a command": pgurl.WithPassword(plain, secrets.Command("cat", file)),
		"passfile":  plain + "&passfile=" + passfile,
	} {
		write("wrong")
		waittest.Eventually(t, name+": the server asks for a password", func() error {
			_, err := pgurl.Connect(t.Context(), url)
			return waittest.Unless(err != nil, "it asks for none")
		})
		_, err := pgurl.Connect(t.Context(), url)
		require.ErrorContains(t, err, "password authentication failed")
		require.NotContains(t, err.Error(), "wrong")

		server.Exec("ALTER ROLE app PASSWORD 'first'")
		write("first")
		cfg, err := pgurl.ParsePool(url)
		require.NoError(t, err)
		cfg.MaxConns = 2
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		held, err := pool.Acquire(t.Context())
		require.NoError(t, err)

		server.Exec("ALTER ROLE app PASSWORD 'second'")
		write("second")
		require.NoError(t, held.Ping(t.Context()), "an open connection needs no password")
		next, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		next.Release()
		held.Release()
		single, err := pgurl.ConnectAs(t.Context(), pool.Config())
		require.NoError(t, err)
		require.NoError(t, single.Close(context.Background()))
	}
}

func TestPasswordThatCannotBeRead(t *testing.T) {
	t.Parallel()
	_, err := pgurl.Connect(t.Context(), pgurl.WithPassword("host=/nowhere user=app", secrets.Command("/bin/sh", "-c", "echo s3cret; exit 1")))
	require.EqualError(t, err, "database_password: the command /bin/sh failed (exit status 1)")
}

func TestURLWithAPassword(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"postgres://app@db/x": false, "postgres://app:secret@db/x": true, "postgres://app@db/x?password=secret": true,
		"postgres://app@db/x?passfile=/p": false, "host=db user=app": false, "host=db password=secret": true,
		"password = secret host=db": true, "host=db passwordless=1": false,
	} {
		require.Equal(t, want, pgurl.HasPassword(text), text)
	}
}
