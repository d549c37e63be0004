package limit

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// MemoryLimit is the memory that a process may use.
type MemoryLimit struct {
	Bytes  int64
	Source string // where it was found: limits.memory, GOMEMLIMIT, cgroup, or machine
	// Runtime is the limit of the Go runtime (runtime/debug.SetMemoryLimit); 0: none.
	Runtime int64
}

// FindMemory returns the limit of this process, and sets that of the Go runtime. configured is the
// setting, 0 for none. share is the part of the limit, in percent, that the runtime may use.
// GOMEMLIMIT always takes precedence for the runtime.
func FindMemory(configured int64, share int64) MemoryLimit {
	l := find(os.DirFS("/"), configured, os.Getenv("GOMEMLIMIT"), debug.SetMemoryLimit(-1), share)
	if l.Runtime > 0 {
		debug.SetMemoryLimit(l.Runtime)
	}
	return l
}

// find returns the limit. env is GOMEMLIMIT as the process got it, and parsed as the runtime read it.
func find(root fs.FS, configured int64, env string, parsed, share int64) MemoryLimit {
	l := MemoryLimit{Bytes: configured, Source: "limits.memory"}
	if configured == 0 {
		l.Bytes, l.Source = cgroup(root), "cgroup"
	}
	given := env != "" && parsed < math.MaxInt64
	if given && (l.Bytes == 0 || parsed < l.Bytes) {
		l.Bytes, l.Source = parsed, "GOMEMLIMIT"
	}
	switch {
	case env != "": // the operator has decided, perhaps with "off"
		if given {
			l.Runtime = parsed
		}
	case l.Bytes > 0:
		l.Runtime = l.Bytes / 100 * share
	}
	if l.Bytes == 0 {
		l.Bytes, l.Source = machine(root), "machine"
	}
	return l
}

// cgroup returns the smallest limit of the process's control groups; 0: none.
func cgroup(root fs.FS) int64 {
	own, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := int64(0)
	for line := range strings.Lines(string(own)) {
		// hierarchy:controllers:path; version 2 has no controllers.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		base, file := "", ""
		switch {
		case fields[0] == "0" && fields[1] == "":
			base, file = "sys/fs/cgroup", "memory.max"
		case contains(fields[1], "memory"):
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// Each parent may have a limit. In a container the path may be that of the host, where only
		// the root is visible.
		for at := path.Clean("/" + fields[2]); ; at = path.Dir(at) {
			if n := number(root, path.Join(base, at, file)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if at == "/" {
				break
			}
		}
	}
	return least
}

func contains(list, member string) bool {
	for m := range strings.SplitSeq(list, ",") {
		if m == member {
			return true
		}
	}
	return false
}

// unlimited is where limits of version 1 begin to mean none.
const unlimited = 1 << 60

// number reads a file with a number of bytes; 0: no limit.
func number(root fs.FS, name string) int64 {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil || n <= 0 || n >= unlimited {
		return 0 // "max"
	}
	return n
}

// unknown is the memory of a machine that does not tell.
const unknown = 2 << 30

// machine returns the memory of the machine.
func machine(root fs.FS) int64 {
	info, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(info)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64); err == nil && n > 0 {
				return n << 10
			}
		}
	}
	return unknown
}
