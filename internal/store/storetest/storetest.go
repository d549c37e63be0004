// Package storetest gives each test a PostgreSQL database of its own.
//
// The server is, in this order: the one in HOLDFAST_TEST_DATABASE_URL; a throwaway cluster from PostgreSQL installed on
// this machine, which all test processes of one user share; a container, where Docker answers; the throwaway cluster
// again, from downloaded binaries or the distribution's package.
//
// Databases are cloned from a template that has the schema. They are whole databases and not schemas, since NOTIFY
// channels belong to a database, and their time zone is an awkward one.
package storetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/store/schema"
	"github.com/holdfast-a2a/holdfast/migrations"
)

// EnvURL names a server for the tests: a URL whose role may create databases.
const EnvURL = "HOLDFAST_TEST_DATABASE_URL"

// zone is no whole number of hours away from UTC, so a wrong conversion shows.
const zone = "Asia/Kathmandu"

// patience bounds each conversation with the server about databases.
const patience = 2 * time.Minute

// DB is a database with the schema and no rows.
type DB struct {
	URL  string
	Name string

	server *server
}

// New makes a database for the test and drops it afterwards. If the test fails, the database stays for a look, and the
// test's output says how to get there.
func New(t testing.TB) *DB {
	t.Helper()
	db, err := Create(context.WithoutCancel(t.Context()), t.Name())
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
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

// Create makes a database for something other than a test. The label becomes part of its name.
func Create(ctx context.Context, label string) (*DB, error) {
	s, err := shared()
	if err != nil {
		return nil, err
	}
	label = notInName.ReplaceAllString(strings.ToLower(label), "_")
	name := fmt.Sprintf("t_%.40s_%s", label, strings.ToLower(rand.Text()[:8]))
	err = s.exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+s.template,
		"ALTER DATABASE "+name+" SET timezone = '"+zone+"'")
	if err != nil {
		return nil, err
	}
	return &DB{URL: s.databaseURL(name), Name: name, server: s}, nil
}

// Drop removes the database, whoever is connected to it.
func (db *DB) Drop(ctx context.Context) error {
	return db.server.exec(ctx, "DROP DATABASE "+db.Name+" WITH (FORCE)")
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

var shared = sync.OnceValues(func() (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := obtain(ctx, log)
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
	// Were the cluster collected as garbage, its files would be closed, and our lease on it would end with them.
	cluster *pgembed.Server
}

// templateName depends on the steps, so that a change of the schema is a new template and switching branches is free.
func templateName() (string, error) {
	files, err := fs.Glob(migrations.FS, "*.sql") // sorted
	if err != nil {
		return "", fmt.Errorf("read migrations: %w", err)
	}
	sum := sha256.New()
	for _, file := range files {
		content, err := migrations.FS.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read migrations: %w", err)
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", file, len(content), content)
	}
	return fmt.Sprintf("holdfast_template_%x", sum.Sum(nil)[:6]), nil
}

// makeTemplate makes sure that the template exists. The advisory lock makes test processes that start together take
// turns; the template mark is set last, so a database without it is what a killed process left.
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
	for _, statement := range []string{
		"DROP DATABASE IF EXISTS " + name,
		"CREATE DATABASE " + name + " TEMPLATE template0 ENCODING 'UTF8'",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("test template: %w", err)
		}
	}
	if err := schema.Migrate(ctx, s.databaseURL(name), log); err != nil {
		return fmt.Errorf("test template: %w", err)
	}
	if _, err := conn.Exec(ctx, "ALTER DATABASE "+name+" IS_TEMPLATE true"); err != nil {
		return fmt.Errorf("test template: %w", err)
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
