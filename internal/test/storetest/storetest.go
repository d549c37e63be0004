// Package storetest gives each test a PostgreSQL database of its own.
//
// The server is the one in HOLDFAST_TEST_DATABASE_URL, or a throwaway cluster from PostgreSQL's programs on this machine
// (installed, or downloaded once), which all test processes of one user share. Server, which a test stops and starts, always
// needs the programs.
//
// Databases are cloned from a template that has the schema. They are whole databases instead of
// schemas, because NOTIFY channels belong to a database. They have an unusual time zone.
package storetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/migrations"
)

// EnvURL names a server for the tests: a URL whose role may create databases.
const EnvURL = "HOLDFAST_TEST_DATABASE_URL"

// zone is not a whole number of hours from UTC, so that a wrong conversion shows.
const zone = "Asia/Kathmandu"

// patience bounds each operation that creates or drops databases.
const patience = 2 * time.Minute

// AtATime sets how many tests of a package run at a time, unless -parallel does. These tests mostly wait, for a database or
// for other processes. The default is the number of cores, as for packages. Call it from TestMain.
func AtATime(tests int) {
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set(strconv.Itoa(tests))
	}
}

// DB is a database with the schema and no rows.
type DB struct {
	URL  string
	Name string

	server *server
}

// New creates a database for the test and drops it afterwards. If the test fails, the database
// stays, and the test's output shows how to connect to it.
func New(t testing.TB) *DB {
	t.Helper()
	db, err := Create(context.WithoutCancel(t.Context()), t.Name())
	require.NoError(t, err, "test database")
	t.Cleanup(func() {
		if t.Failed() {
			db.server.keep()
			t.Logf("the database of this failed test is kept: psql '%s'", db.URL)
			return
		}
		if err := db.Drop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("test database: %v", err)
		}
	})
	return db
}

// Create creates a database outside of a test. The label becomes part of its name.
func Create(ctx context.Context, label string) (*DB, error) {
	s, err := shared()
	if err != nil {
		return nil, err
	}
	label = notInName.ReplaceAllString(strings.ToLower(label), "_")
	name := fmt.Sprintf("t_%.38s_%s", label, strings.ToLower(rand.Text()[:8]))
	err = s.exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+s.template,
		"ALTER DATABASE "+name+" SET timezone = '"+zone+"'")
	if err != nil {
		return nil, err
	}
	db := &DB{URL: s.databaseURL(name), Name: name, server: s}
	// The template has another role for callers.
	conn, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		return nil, fmt.Errorf("test database: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "SELECT holdfast.admit_callers()"); err != nil {
		return nil, fmt.Errorf("test database: %w", err)
	}
	return db, nil
}

// APIRole is the role of callers' statements in this database.
func (db *DB) APIRole() string { return "holdfast_api_" + db.Name }

// Drop drops the database and closes all connections to it.
func (db *DB) Drop(ctx context.Context) error {
	return db.server.exec(ctx, "DROP DATABASE "+db.Name+" WITH (FORCE)", "DROP ROLE IF EXISTS "+db.APIRole())
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

var shared = sync.OnceValues(func() (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := obtain()
	if err != nil {
		return nil, err
	}
	return s, s.makeTemplate(ctx, log)
})

// server can create databases.
type server struct {
	url      string // of its maintenance database
	keep     func() // called when a failed test leaves its database behind
	template string
	// Closed when this process ends, or is garbage. Then the janitor thinks that it has.
	ours io.Closer
}

// templateName depends on the migrations. So a changed schema gets a new template, and switching
// branches costs nothing.
func templateName() (string, error) {
	files, err := fs.Glob(migrations.FS, "*.sql") // sorted
	if err != nil {
		return "", fmt.Errorf("read migrations: %w", err)
	}
	sum := sha256.New()
	_, _ = sum.Write([]byte("partitions by month and by day\n")) // the partitions that makeTemplate adds
	_, _ = fmt.Fprintln(sum, schema.VersionTable)
	for _, file := range files {
		content, err := migrations.FS.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read migrations: %w", err)
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", file, len(content), content)
	}
	return fmt.Sprintf("holdfast_template_%x", sum.Sum(nil)[:6]), nil
}

// makeTemplate makes sure that the template exists. With the advisory lock, test processes that
// start together take turns. The template mark is set last, so a killed process left a database
// without it.
func (s *server) makeTemplate(ctx context.Context, log *slog.Logger) error {
	name, err := templateName()
	if err != nil {
		return err
	}
	s.template = name
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return fmt.Errorf("test server: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }() // also releases the lock
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtext('holdfast storetest'))"); err != nil {
		return fmt.Errorf("test template: %w", err)
	}
	var done bool
	err = conn.QueryRow(ctx, "SELECT coalesce(bool_or(datistemplate), false) FROM pg_database WHERE datname = $1", name).Scan(&done)
	if err != nil || done {
		return err
	}
	if err := s.exec(ctx, "DROP DATABASE IF EXISTS "+name, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8'"); err != nil {
		return fmt.Errorf("test template: %w", err)
	}
	if err := schema.Migrate(ctx, s.databaseURL(name), log); err != nil {
		return fmt.Errorf("test template: %w", err)
	}
	var now time.Time // of the database: the first test may have a clock of its own
	if err := conn.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return fmt.Errorf("test template: %w", err)
	}
	if err := Partitions(ctx, s.databaseURL(name), now, now.AddDate(0, 0, 1)); err != nil {
		return fmt.Errorf("test template: %w", err)
	}
	return s.exec(ctx, "ALTER DATABASE "+name+" IS_TEMPLATE true")
}

// Partitions creates partitions between two times, as a server does for now when it starts. It is
// for tests that write rows of other times by SQL. Idempotency keys and delivery attempts have one
// partition per day, so a range of more than 60 days leaves them out.
func Partitions(ctx context.Context, databaseURL string, from, to time.Time) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("partitions: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, f := range partition.Families {
		width := partition.Month
		if f.Name == partition.Keys.Name || f.Name == partition.Attempts.Name {
			if width = partition.Day; to.Sub(from) > 60*24*time.Hour {
				continue
			}
		}
		if _, err := partition.Ensure(ctx, conn, f, width, from, to); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) exec(ctx context.Context, statements ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return fmt.Errorf("test server: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func (s *server) databaseURL(name string) string {
	u, err := url.Parse(s.url)
	if err != nil {
		panic(err) // pgx has parsed it already
	}
	u.Path = "/" + name
	return u.String()
}

// Connect opens a session that ends with the test.
func Connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err, "test database")
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// Must requires that a call succeeds, and returns its result: Must(call())(t).
func Must[T any](result T, err error) func(t require.TestingT, message ...any) T {
	return func(t require.TestingT, message ...any) T {
		require.NoError(t, err, message...)
		return result
	}
}
