package pgembed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is the user that PostgreSQL runs as. PostgreSQL refuses to run as root, so root runs its programs as another
// user.
type account struct {
	name     string
	uid, gid uint32
	lent     bool // we are root, and the account is another user
}

// currentAccount returns the account for a new cluster.
func currentAccount() (account, error) {
	if uid := os.Geteuid(); uid != 0 {
		// Containers often run under a uid without a name; initdb's error about that is hard to understand.
		if _, err := user.LookupId(strconv.Itoa(uid)); err != nil {
			return account{}, fmt.Errorf("PostgreSQL needs a user with a name, but user id %d has none on this machine; "+
				"add it to /etc/passwd, start as another user, or set HOLDFAST_DATABASE_URL", uid)
		}
		return account{name: strconv.Itoa(uid), uid: uint32(uid), gid: uint32(os.Getegid())}, nil
	}
	// initdb insists on a user with an entry in the user database, so an arbitrary free uid would not do.
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return lentAccount(u)
		}
	}
	return account{}, fmt.Errorf("PostgreSQL does not run as root, and this machine has neither a user postgres nor a user nobody; " +
		"create one (useradd --system postgres) or start as an ordinary user")
}

// ownerAccount returns the account that owns an existing cluster. Root uses the owner's account; any other user must be
// the owner.
func ownerAccount(path string) (account, error) {
	info, err := os.Stat(path)
	if err != nil {
		return account{}, fmt.Errorf("find the owner of the database directory: %w", err)
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch me := os.Geteuid(); {
	case uint32(me) == owner && me != 0:
		return currentAccount()
	case me != 0:
		return account{}, fmt.Errorf("%s belongs to user id %d, but this process runs as %d; start it as that user or choose another directory",
			path, owner, me)
	case owner == 0:
		return account{}, fmt.Errorf("%s belongs to root, and PostgreSQL does not run as root; remove it or chown it to an ordinary user", path)
	}
	u, err := user.LookupId(strconv.FormatUint(uint64(owner), 10))
	if err != nil {
		return account{}, fmt.Errorf("find the owner of %s: %w", path, err)
	}
	return lentAccount(u)
}

func lentAccount(u *user.User) (account, error) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err, gidErr); err != nil {
		return account{}, fmt.Errorf("parse the ids of the user %s: %w", u.Username, err)
	}
	return account{name: u.Username, uid: uint32(uid), gid: uint32(gid), lent: true}, nil
}

// command prepares a program to run as the account. The program gets its own session, so that Ctrl-C at the terminal
// reaches only us. The database must still run while we stop.
func (a account) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir // not our directory: the account may be unable to enter it, and PostgreSQL's programs complain
	cmd.Env = environment(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a.lent {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // initdb and pg_ctl clean up on it
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// environment returns the variables for PostgreSQL's programs: those that they need to run and to find their files.
// Other variables may be secrets, and other programs of the account could read them. PGDATA, PGPORT and similar
// variables are for the operator's clients.
func environment(ours []string) []string {
	env := []string{}
	for _, kv := range ours {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "PATH", "HOME", "TMPDIR", "TZ", "TZDIR", "LANG", "LOCALE_ARCHIVE":
			env = append(env, kv)
		default:
			if strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") {
				env = append(env, kv)
			}
		}
	}
	return env
}

// canEnter reports whether the account can reach a directory, which depends on every parent.
func (a account) canEnter(ctx context.Context, dir string) bool {
	return a.command(ctx, dir, "/bin/sh", "-c", ":").Run() == nil
}

// ownIn changes the owner of one of files to the account.
func (a account) ownIn(files *os.Root, name string) error {
	if !a.lent {
		return nil
	}
	if err := files.Lchown(name, int(a.uid), int(a.gid)); err != nil {
		return fmt.Errorf("change the owner: %w", err)
	}
	return nil
}

// own changes the owner of a path to the account.
func (a account) own(path string) error {
	if !a.lent {
		return nil
	}
	if err := os.Lchown(path, int(a.uid), int(a.gid)); err != nil {
		return fmt.Errorf("change the owner: %w", err)
	}
	return nil
}
