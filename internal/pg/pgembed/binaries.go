package pgembed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MinMajor is the oldest PostgreSQL that Holdfast runs on.
const MinMajor = 14

// defaultMajor is the version to download when no existing data needs another one.
const defaultMajor = 17

// EnvBin names a directory with PostgreSQL's programs. It has priority over all other places.
const EnvBin = "HOLDFAST_PG_BIN"

// Binaries is one installation of PostgreSQL.
type Binaries struct {
	Dir     string // holds initdb, pg_ctl and postgres
	Version string // such as 17.5
	Major   int
}

// errNone means that the machine has no usable PostgreSQL.
var errNone = errors.New("no PostgreSQL found")

// Find locates PostgreSQL on this machine. It looks in the directory of HOLDFAST_PG_BIN, then in PATH, then in the
// places of distributions and installers, newest first. It accepts version 14 or later. If major is not 0, it accepts
// only that version, because the files of a cluster belong to one major version.
func Find(ctx context.Context, log *slog.Logger, major int) (Binaries, error) {
	acct, err := currentAccount()
	if err != nil {
		return Binaries{}, err
	}
	if dir := os.Getenv(EnvBin); dir != "" {
		// An operator who names a directory wants that one. So a mistake in it is an error and not a reason to look
		// elsewhere.
		b, err := inspect(ctx, acct, dir)
		if err == nil {
			err = b.suits(major)
		}
		if err != nil {
			return Binaries{}, fmt.Errorf("%s: %w", EnvBin, err)
		}
		return b, nil
	}
	var unfit []string
	for _, dir := range places() {
		b, err := inspect(ctx, acct, dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = b.suits(major)
		}
		if err != nil {
			unfit = append(unfit, err.Error())
			continue
		}
		log.Info("postgresql found", "version", b.Version, "dir", b.Dir)
		return b, nil
	}
	wanted := fmt.Sprintf("%d or later", MinMajor)
	if major != 0 {
		wanted = strconv.Itoa(major)
	}
	if len(unfit) > 0 {
		return Binaries{}, fmt.Errorf("%w of version %s (found: %s)", errNone, wanted, strings.Join(unfit, "; "))
	}
	return Binaries{}, fmt.Errorf("%w of version %s", errNone, wanted)
}

// Ensure calls Find. If that finds nothing, it downloads PostgreSQL and caches it for the user. If that fails, its error says what
// a person may install: it does not change the machine.
func Ensure(ctx context.Context, log *slog.Logger, major int) (Binaries, error) {
	b, err := Find(ctx, log, major)
	if !errors.Is(err, errNone) {
		return b, err
	}
	failed := download(ctx, log, major)
	if failed == nil {
		if b, failed = Find(ctx, log, major); failed == nil {
			return b, nil
		}
	}
	version := fmt.Sprintf("%d or later", MinMajor)
	if major != 0 {
		version = strconv.Itoa(major)
	}
	return Binaries{}, fmt.Errorf("%w\ninstall PostgreSQL %s (Debian, Ubuntu: apt-get install postgresql; "+
		"Fedora: dnf install postgresql-server; macOS: brew install postgresql@%d), set %s to the directory of its programs, "+
		"or set HOLDFAST_DATABASE_URL to a running server", errors.Join(err, failed), version, defaultMajor, EnvBin)
}

func (b Binaries) suits(major int) error {
	if major != 0 && b.Major != major || b.Major < MinMajor {
		return fmt.Errorf("%s is PostgreSQL %s", b.Dir, b.Version)
	}
	return nil
}

func (b Binaries) path(program string) string { return filepath.Join(b.Dir, program) }

var versionLine = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// inspect reads the version of the programs in dir. It runs them as the account that will use them later, so it rejects
// a directory that this account cannot reach.
func inspect(ctx context.Context, acct account, dir string) (Binaries, error) {
	// Distributions put links in PATH; the target's directory has the complete set of programs.
	target, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return Binaries{}, fmt.Errorf("look for postgres: %w", err)
	}
	b := Binaries{Dir: filepath.Dir(target)}
	for _, program := range []string{"initdb", "pg_ctl"} {
		if _, err := os.Stat(b.path(program)); err != nil {
			return Binaries{}, fmt.Errorf("look for %s: %w", program, err)
		}
	}
	out, err := acct.command(ctx, "/", b.path("postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("run %s as %s: %w", b.path("postgres"), acct.name, elsewhereHelps(err, "its file system may be mounted with noexec"))
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return Binaries{}, fmt.Errorf("%s printed an unknown version: %q", b.path("postgres"), out)
	}
	b.Version = m[1]
	b.Major, err = strconv.Atoi(m[2])
	return b, err
}

// places returns the directories to search, best first.
func places() []string {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian
		"/usr/pgsql-*/bin",          // the PostgreSQL project's RPMs
		"/usr/libexec/postgresql*",  // Alpine
		"/usr/local/pgsql/bin",      // from source
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/opt/local/lib/postgresql*/bin", // MacPorts
		filepath.Join(literal(cacheDir()), "postgresql-*", "bin"),
	} {
		if strings.HasPrefix(pattern, literal(cacheDir())) && ownDir(cacheDir()) != nil {
			continue
		}
		found, _ := filepath.Glob(pattern) // the only error is a bad pattern
		slices.SortFunc(found, func(a, b string) int { return lastNumber(b) - lastNumber(a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// literal returns a pattern that matches only the path.
func literal(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

var digits = regexp.MustCompile(`\d+`)

func lastNumber(s string) int {
	all := digits.FindAllString(s, -1)
	if len(all) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(all[len(all)-1])
	return n
}
