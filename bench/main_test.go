package bench

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// Shared by all benchmarks.
var (
	pgURL string // the server's first database
	pg    *pgx.Conn
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(rawServerEnv); addr != "" {
		fmt.Fprintln(os.Stderr, "bench:", serveRaw(addr))
		os.Exit(1)
	}
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		// Without benchmarks, as in go test ./..., nothing needs a database.
		os.Exit(m.Run())
	}
	code, err := prepared(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		code = 1
	}
	os.Exit(code)
}

// prepared runs f with a private PostgreSQL, or with the one in HOLDFAST_BENCH_DATABASE_URL.
func prepared(f func() int) (int, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "holdfast-bench")
	if err != nil {
		return 1, err
	}
	clean := func() { _ = os.RemoveAll(dir) }
	defer func() { clean() }()
	// When root runs the benchmarks, PostgreSQL runs as another user, which must be able to enter the directory.
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	if pgURL = os.Getenv("HOLDFAST_BENCH_DATABASE_URL"); pgURL == "" {
		server, err := pgembed.Start(ctx, pgembed.Options{
			Dir: dir, Log: slog.New(slog.DiscardHandler),
			Settings: settings(),
		})
		if err != nil {
			return 1, err
		}
		clean = func() {
			_ = server.Destroy(ctx)
			_ = os.RemoveAll(dir)
		}
		pgURL = server.DSN()
	}
	// After Ctrl-C in a terminal, go test waits for this process, which cleans up first.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		processes.Range(func(p, _ any) bool {
			_ = p.(*os.Process).Kill()
			return true
		})
		clustertest.KillAll()
		clean()
		os.Exit(1)
	}()
	if pg, err = pgx.Connect(ctx, pgURL); err != nil {
		return 1, err
	}
	if err := describe(ctx); err != nil {
		return 1, err
	}
	return f(), nil
}

// settingsEnv names the variable with settings of the private PostgreSQL: name=value,name=value.
const settingsEnv = "HOLDFAST_BENCH_SETTINGS"

// settings are those of the private PostgreSQL. The raw insert needs 256 connections. All others are those of every embedded
// database, unless the variable has them.
func settings() map[string]string {
	all := map[string]string{"max_connections": "400"}
	for each := range strings.SplitSeq(os.Getenv(settingsEnv), ",") {
		if name, value, ok := strings.Cut(each, "="); ok {
			all[name] = value
		}
	}
	return all
}

// describe prints the environment in the form that go test uses. It refuses a database whose commits do not reach the
// disk, because its numbers could not be compared.
func describe(ctx context.Context) error {
	for _, name := range []string{"server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_compression", "shared_buffers"} {
		var value string
		if err := pg.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return err
		}
		switch name {
		case "fsync", "synchronous_commit", "full_page_writes":
			if value != "on" {
				return fmt.Errorf("the database has %s=%s; it must be on", name, value)
			}
		}
		fmt.Printf("postgresql-%s: %s\n", strings.ReplaceAll(name, "_", "-"), value) //nolint:forbidigo // the benchmarks' own output
	}
	return nil
}

// databaseURL is the URL of another database of the same server.
func databaseURL(name string) string {
	u, err := url.Parse(pgURL)
	if err != nil || u.Scheme == "" {
		return pgURL + " dbname=" + name // in a list of keywords the last one wins
	}
	u.Path = "/" + name
	return u.String()
}

// newDatabase makes an empty database for a group of benchmarks.
func newDatabase(b *testing.B) (dbURL string) {
	b.Helper()
	name := "holdfast_bench_" + strconv.FormatInt(time.Now().UnixNano(), 36)
	exec1(b, pg, "CREATE DATABASE "+name)
	b.Cleanup(func() { exec1(b, pg, "DROP DATABASE "+name+" WITH (FORCE)") })
	return databaseURL(name)
}

func connect(b *testing.B, dbURL string) *pgx.Conn {
	b.Helper()
	c, err := pgx.Connect(b.Context(), dbURL)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func exec1(b *testing.B, c *pgx.Conn, sql string, args ...any) {
	b.Helper()
	if _, err := c.Exec(context.Background(), sql, args...); err != nil {
		b.Fatalf("%.60s: %v", sql, err)
	}
}

func one[T any](b *testing.B, c *pgx.Conn, sql string, args ...any) (v T) {
	b.Helper()
	if err := c.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		b.Fatalf("%.60s: %v", sql, err)
	}
	return v
}

// settle lets the database finish the work that the previous benchmark left: dirty pages and vacuuming would multiply
// the next latencies.
func settle(b *testing.B) {
	b.Helper()
	exec1(b, pg, "CHECKPOINT")
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if one[int](b, pg, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'") == 0 {
			return
		}
	}
}

// tiny is the count of a -benchtime such as 20x, which checks that all benchmarks work; 0 if -benchtime is a time.
func tiny() int {
	n, err := strconv.Atoi(strings.TrimSuffix(flag.Lookup("test.benchtime").Value.String(), "x"))
	if err != nil {
		return 0
	}
	return n
}

func benchtime() time.Duration {
	d, err := time.ParseDuration(flag.Lookup("test.benchtime").Value.String())
	if err != nil {
		return time.Second
	}
	return d
}

// rounds repeats a function at least n times and until the time is over, for benchmarks that do not use b.N.
func rounds(atLeast int) func(yield func() bool) {
	return func(yield func() bool) {
		start := time.Now()
		for n := 0; n < atLeast || (tiny() == 0 && time.Since(start) < benchtime()); n++ {
			if !yield() {
				return
			}
		}
	}
}
