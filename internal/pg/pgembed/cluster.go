package pgembed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// port is only part of the socket's file name: nothing listens on TCP.
const port = "5432"

// ourSettings is a file in the data directory, rewritten at each start. An operator's ALTER SYSTEM goes to
// postgresql.auto.conf, which PostgreSQL reads later, so it has priority.
const ourSettings = "holdfast.conf"

// defaults suit a laptop that also runs everything else. fsync stays on: acknowledged means stored.
var defaults = map[string]string{
	"listen_addresses":        "",
	"max_connections":         "200",
	"shared_buffers":          "128MB",
	"port":                    port,
	"unix_socket_permissions": "0700",
	"log_line_prefix":         "%m [%p] %q%u@%d ",
}

// errRemains means that a killed PostgreSQL has not ended completely yet.
var errRemains = errors.New("a killed PostgreSQL still uses the files")

var remainsComplaints = []string{"is still in use", "lock file \"postmaster.pid\" already exists"}

// cluster is a data directory and the account it belongs to.
type cluster struct {
	log      *slog.Logger
	settings map[string]string
	home     string
	acct     account
}

func openCluster(ctx context.Context, o Options) (cluster, error) {
	home, acct, err := openHome(ctx, o.Log, o.Dir)
	if err != nil {
		return cluster{}, err
	}
	return cluster{log: o.Log, settings: o.Settings, home: home, acct: acct}, nil
}

// The names of the files in home.
const (
	dataName = "data"
	logName  = "log"
)

func (c cluster) data() string      { return filepath.Join(c.home, dataName) }
func (c cluster) logFile() string   { return filepath.Join(c.home, logName) }
func (c cluster) socketDir() string { return socketHome(c.home) }

// inHome gives do access to the files in home. The account may put links there. If we are root, these links must not
// make us write files that the account cannot write.
func (c cluster) inHome(do func(files *os.Root) error) error {
	files, err := os.OpenRoot(c.home)
	if err != nil {
		return err
	}
	return errors.Join(do(files), files.Close())
}

// run makes the database answer, from any state.
func (c cluster) run(ctx context.Context) error {
	patience := time.Now().Add(30 * time.Second)
	for {
		adopted, err := c.adopt(ctx)
		if err != nil {
			return err
		}
		if !adopted {
			err = c.spawn(ctx)
		}
		if err == nil {
			return c.createDatabase(ctx)
		}
		if !errors.Is(err, errRemains) || time.Now().After(patience) || ctx.Err() != nil {
			return err
		}
		c.log.Info("waiting for the processes of a killed postgresql")
		time.Sleep(500 * time.Millisecond)
	}
}

// adopt uses a server that is already running. It returns false if no server runs. It stops a server that cannot be
// used.
func (c cluster) adopt(ctx context.Context) (bool, error) {
	pid, err := c.postmaster()
	if err != nil || pid == 0 {
		return false, err
	}
	err = c.awaitAnswer(ctx, pid)
	if err == nil {
		c.log.Info("postgresql already runs; using it", "pid", pid, "dir", c.home, "psql", c.psql())
		return true, nil
	}
	if !errors.Is(err, errDeaf) && !errors.Is(err, errEnding) {
		return false, err
	}
	c.log.Warn("restarting an unusable postgresql", "pid", pid, "reason", err)
	return false, c.stop(ctx, syscall.SIGINT)
}

// major returns the version of the data, or 0 if there is no data yet.
func (c cluster) major() (int, error) {
	raw, err := os.ReadFile(filepath.Join(c.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the data: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, fmt.Errorf("parse the version of the data in %s: %w", c.data(), err)
	}
	return major, nil
}

// create makes the data directory under a temporary name, so that a kill during creation leaves no partial cluster.
func (c cluster) create(ctx context.Context, bin Binaries) error {
	c.log.Info("creating the postgresql data directory", "version", bin.Version, "dir", c.data(), "user", c.acct.name)
	leftovers, _ := filepath.Glob(filepath.Join(literal(c.home), "initdb-*")) // the only error is a bad pattern
	for _, dir := range leftovers {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("initdb: %w", err)
		}
	}
	fresh := filepath.Join(c.home, fmt.Sprintf("initdb-%d", os.Getpid()))
	// The C locale exists everywhere and sorts the same everywhere. Nobody connects over TCP. A user that can enter the
	// socket's directory needs no password, and only the account and root can enter it.
	args := []string{
		"--pgdata=" + fresh, "--username=" + role, "--encoding=UTF8", "--locale=C", "--data-checksums",
		"--auth-local=trust", "--auth-host=reject",
	}
	if c.settings["fsync"] == "off" {
		args = append(args, "--no-sync")
	}
	if out, err := c.acct.command(ctx, c.home, bin.path("initdb"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, complaint(out, 4))
	}
	err := c.inHome(func(files *os.Root) error {
		conf, err := files.OpenFile(filepath.Join(filepath.Base(fresh), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(conf, "\n# Written at each start of Holdfast. To change a setting, use ALTER SYSTEM.\ninclude_if_exists = '%s'\n",
			ourSettings)
		if err := errors.Join(err, conf.Close()); err != nil {
			return err
		}
		return files.Rename(filepath.Base(fresh), dataName)
	})
	if err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	return nil
}

// spawn starts PostgreSQL and returns when it answers. If there is no data yet, it creates the data directory first.
func (c cluster) spawn(ctx context.Context) error {
	major, err := c.major()
	if err != nil {
		return err
	}
	bin, err := Ensure(ctx, c.log, major)
	if err != nil && major != 0 {
		return fmt.Errorf("%s has data of PostgreSQL %d, and needs that version: %w", c.data(), major, err)
	}
	if err != nil {
		return err
	}
	if major == 0 {
		if err := c.create(ctx, bin); err != nil {
			return err
		}
	}
	if err := makeSocketDir(c.socketDir(), c.acct); err != nil {
		return err
	}
	if err := c.writeSettings(ctx, bin); err != nil {
		return err
	}
	if err := c.clearStale(); err != nil {
		return err
	}
	c.log.Info("starting postgresql", "version", bin.Version, "dir", c.home, "user", c.acct.name)
	said, err := c.pgCtlStart(ctx, bin)
	if err == nil {
		c.log.Info("postgresql ready", "psql", c.psql())
		return nil
	}
	for _, remains := range remainsComplaints {
		if strings.Contains(said, remains) {
			return errRemains
		}
	}
	return fmt.Errorf("start PostgreSQL: %w (log: %s): %s", err, c.logFile(), complaint([]byte(said), 4))
}

// pgCtlStart returns PostgreSQL's log output besides the error. pg_ctl detaches the server from us, and passes it our
// process id; clearStale relies on that.
func (c cluster) pgCtlStart(ctx context.Context, bin Binaries) (string, error) {
	out, err := c.openLog()
	if err != nil {
		return "", err
	}
	defer func() { _ = out.Close() }()
	before, err := out.Stat()
	if err != nil {
		return "", fmt.Errorf("open PostgreSQL's log: %w", err)
	}
	// Recovery after a crash may take long; only ctx limits it.
	cmd := c.acct.command(ctx, c.home, bin.path("pg_ctl"), "start", "--silent", "--wait", "--timeout=86400", "--pgdata="+c.data())
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		all, _ := os.ReadFile(c.logFile())
		return string(all[min(int(before.Size()), len(all)):]), err
	}
	return "", nil
}

// openLog opens the log for this start. It rotates a long log and keeps one predecessor.
func (c cluster) openLog() (f *os.File, err error) {
	err = c.inHome(func(files *os.Root) error {
		if info, err := files.Stat(logName); err == nil && info.Size() > 16<<20 {
			if err := files.Rename(logName, logName+".old"); err != nil {
				return err
			}
		}
		if f, err = files.OpenFile(logName, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			return err
		}
		return c.acct.ownIn(files, logName)
	})
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL's log: %w", err)
	}
	return f, nil
}

func (c cluster) writeSettings(ctx context.Context, bin Binaries) error {
	all := maps.Clone(defaults)
	all["unix_socket_directories"] = c.socketDir()
	// Not every build has lz4; reading the setting back shows whether the server accepts it.
	if c.acct.command(ctx, c.home, bin.path("postgres"), "-D", c.data(),
		"-c", "default_toast_compression=lz4", "-C", "default_toast_compression").Run() == nil {
		all["default_toast_compression"] = "lz4"
	}
	maps.Copy(all, c.settings)
	var b bytes.Buffer
	quote := strings.NewReplacer(`\`, `\\`, `'`, `''`)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, quote.Replace(all[name]))
	}
	err := c.inHome(func(files *os.Root) error {
		path := filepath.Join(dataName, ourSettings)
		if err := files.WriteFile(path, b.Bytes(), 0o600); err != nil {
			return err
		}
		return c.acct.ownIn(files, path)
	})
	if err != nil {
		return fmt.Errorf("write PostgreSQL's settings: %w", err)
	}
	return nil
}

var (
	errDeaf   = errors.New("PostgreSQL does not listen on its socket")
	errEnding = errors.New("PostgreSQL is shutting down")
)

// awaitAnswer waits until a running server accepts connections.
func (c cluster) awaitAnswer(ctx context.Context, pid int) error {
	// A server is silent only for a moment while it starts. A server that stays silent has lost its socket, for example
	// to a cleaner of temporary directories.
	deaf := time.Now().Add(10 * time.Second)
	for n := 0; ; n++ {
		err := c.exec(ctx, "postgres", "SELECT 1")
		var answer *pgconn.PgError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("wait for PostgreSQL: %w", context.Cause(ctx))
		case errors.As(err, &answer) && answer.Code == "57P03": // starting up, in recovery, or shutting down
			deaf = time.Now().Add(10 * time.Second)
			if n == 20 {
				c.log.Info("waiting for postgresql to accept connections", "reason", answer.Message)
			}
		case errors.As(err, &answer) && answer.Code == "57P01":
			return errEnding
		case errors.As(err, &answer):
			return fmt.Errorf("connect to PostgreSQL: %w", err)
		case time.Now().After(deaf):
			return fmt.Errorf("%w: %w", errDeaf, err)
		}
		if now, err := c.postmaster(); err != nil || now != pid {
			return errors.Join(errEnding, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (c cluster) createDatabase(ctx context.Context) error {
	err := c.exec(ctx, "postgres", "CREATE DATABASE "+database)
	var answer *pgconn.PgError
	// It exists, or this is a standby (by an operator's hand), which has the databases of its primary.
	if errors.As(err, &answer) && (answer.Code == "42P04" || answer.Code == "25006") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	return nil
}

func (c cluster) exec(ctx context.Context, name, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.dsn(name))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// remove deletes everything, including directories elsewhere.
func (c cluster) remove() error {
	err := os.RemoveAll(c.home)
	if strings.HasPrefix(c.home, elsewhere+"/") {
		err = errors.Join(err, os.RemoveAll(filepath.Dir(c.home)))
	}
	return errors.Join(err, os.RemoveAll(c.socketDir()))
}
