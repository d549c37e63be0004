package command

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// Options say which program to start, and how. Only Argv is required.
type Options struct {
	Argv []string          // the program, looked up in PATH if it has no slash, and its arguments
	Dir  string            // working directory; empty means the server's
	Env  map[string]string // set for the program

	// Inherit names further variables that the program gets from the server's environment. By default it gets PATH,
	// HOME, USER, LANG, LC_ALL, TZ and TMPDIR, so that the server's secrets stay with the server.
	Inherit []string

	// UID and GID are the user and the group of the program, without further groups. 0 means the server's. Others need a
	// server that runs as root.
	UID, GID int

	Grace    time.Duration // between SIGTERM and SIGKILL; 0 means 5 seconds
	MaxEvent int           // bytes of the largest event; 0 means 16 MiB
	History  wire.History  // what of the conversation to send; the zero History means the default

	Log *slog.Logger // receives the program's stderr; nil discards
}

var alwaysInherited = []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// resolve validates the options and returns the program's absolute path.
func (o *Options) resolve() (path string, err error) {
	var problems []error
	complain := func(option, format string, args ...any) {
		problems = append(problems, fmt.Errorf("command: %s: %s", option, fmt.Sprintf(format, args...)))
	}
	if o.Dir != "" {
		if info, err := os.Stat(o.Dir); err != nil {
			complain("dir", "%v", err)
		} else if !info.IsDir() {
			complain("dir", "%s is not a directory", o.Dir)
		}
	}
	if len(o.Argv) == 0 || o.Argv[0] == "" {
		complain("argv", "is empty; give at least the name of the program")
	} else if path, err = o.program(); err != nil {
		complain("argv", "%v", err)
	}
	for i, arg := range o.Argv {
		if strings.ContainsRune(arg, 0) {
			complain("argv", "argument %d contains a NUL character; remove it", i)
		}
	}
	for name, value := range o.Env {
		if strings.ContainsRune(value, 0) {
			complain("env", "%q contains a NUL character; remove it", name)
		}
	}
	if (o.UID == 0) != (o.GID == 0) {
		complain("uid", "needs gid, and gid needs uid")
	} else if o.UID != 0 && os.Geteuid() != 0 {
		complain("uid", "only a server that runs as root can start a program as another user; remove uid and gid, or run it as root")
	}
	return path, errors.Join(problems...)
}

// program finds the file now, so that a misspelt name stops the start of the server and not the first task. A relative
// path is relative to Dir.
func (o *Options) program() (string, error) {
	name := o.Argv[0]
	if strings.ContainsRune(name, filepath.Separator) && !filepath.IsAbs(name) {
		name = filepath.Join(o.Dir, name)
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(found)
}

// environment returns the environment of the program. Env overrides inherited variables.
func (o *Options) environment() []string {
	env := []string{}
	for _, name := range slices.Concat(alwaysInherited, o.Inherit) {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range o.Env {
		env = append(env, name+"="+value)
	}
	return env
}

func (o Options) withDefaults() Options {
	o.Grace, o.MaxEvent = cmp.Or(o.Grace, 5*time.Second), cmp.Or(o.MaxEvent, wire.DefaultMaxEvent)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
