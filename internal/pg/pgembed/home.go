package pgembed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// elsewhere is where root keeps clusters if the database's user cannot reach their own directory, such as /root.
const elsewhere = "/var/lib/holdfast"

// maxSocketDir leaves room for the socket's name within the 104 bytes of macOS, the lowest limit.
const maxSocketDir = 103 - len("/.s.PGSQL.5432")

// openHome finds or makes PostgreSQL's directory, and returns the account that owns it.
func openHome(ctx context.Context, log *slog.Logger, dir string) (string, account, error) {
	link := filepath.Join(dir, "postgres")
	home, err := filepath.EvalSymlinks(link)
	if err == nil {
		acct, err := ownerAccount(home)
		if err == nil && !acct.canEnter(ctx, home) {
			err = fmt.Errorf("%s: its owner %s cannot enter it; open its parent directories to that user (chmod o+x)", home, acct.name)
		}
		return home, acct, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", account{}, fmt.Errorf("database directory: %w", err)
	}
	// The link's target is gone: the user removed the data and wants a new cluster.
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", account{}, fmt.Errorf("database directory: %w", err)
	}
	acct, err := currentAccount()
	if err != nil {
		return "", account{}, err
	}
	if err = makeHome(ctx, acct, link); err == nil {
		// Use the real path, because PostgreSQL reports it as its working directory.
		home, err = filepath.EvalSymlinks(link)
		return home, acct, err
	}
	if !acct.lent {
		return "", account{}, fmt.Errorf("database directory: %w", err)
	}
	home, err = makeHomeElsewhere(ctx, acct, link)
	if err != nil {
		return "", account{}, fmt.Errorf("database directory: %w", err)
	}
	log.Info("keeping the database elsewhere: the user that runs postgresql cannot enter this directory",
		"user", acct.name, "dir", dir, "elsewhere", home)
	return home, acct, nil
}

func makeHome(ctx context.Context, acct account, path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	err := acct.own(path)
	if err == nil && !acct.canEnter(ctx, path) {
		err = fmt.Errorf("the user %[2]s cannot enter %[1]s", path, acct.name)
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}

// makeOpenDir makes a directory that other users may pass through, whatever the umask. An existing directory keeps its
// mode.
func makeOpenDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // see above
		return err
	}
	return os.Chmod(dir, 0o755) //nolint:gosec // see above
}

// makeHomeElsewhere picks a new name each time. Only the link leads there. So a user who deletes the directory with the
// link gets an empty database, and not an old one.
func makeHomeElsewhere(ctx context.Context, acct account, link string) (string, error) {
	if err := makeOpenDir(elsewhere); err != nil {
		return "", err
	}
	parent, err := os.MkdirTemp(elsewhere, filepath.Base(filepath.Dir(filepath.Dir(link)))+"-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(parent, 0o711); err != nil { //nolint:gosec // as above
		return "", err
	}
	home := filepath.Join(parent, "postgres")
	if err := makeHome(ctx, acct, home); err != nil {
		return "", err
	}
	return home, os.Symlink(home, link)
}

// socketHome returns the directory for the socket. That is inside home, unless home's path is too long for a socket's
// address or would be read as several addresses. Then it is a private directory named after home.
func socketHome(home string) string {
	if dir := filepath.Join(home, "run"); len(dir) <= maxSocketDir && !strings.Contains(dir, ",") {
		return dir
	}
	return fmt.Sprintf("/tmp/holdfast-%x", sha256.Sum256([]byte(home)))[:len("/tmp/holdfast-")+16]
}

// makeSocketDir refuses a directory that another user prepared. /tmp is open to all, and only the mode of this
// directory keeps other users out of the database.
func makeSocketDir(dir string, acct account) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		return acct.own(dir)
	}
	var info fs.FileInfo
	if errors.Is(err, fs.ErrExist) {
		info, err = os.Lstat(dir)
	}
	if err != nil {
		return fmt.Errorf("socket directory: %w", err)
	}
	if !info.IsDir() || info.Mode().Perm() != 0o700 || info.Sys().(*syscall.Stat_t).Uid != acct.uid {
		return fmt.Errorf("socket directory %s is not a private directory of user %s; remove it", dir, acct.name)
	}
	return nil
}
