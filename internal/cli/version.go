package cli

import (
	"cmp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
}

const module = "github.com/holdfast-a2a/holdfast"

// A release and an image are built where the Go toolchain may see no repository, so they stamp these with -ldflags -X
// (.goreleaser.yaml, Dockerfile): the version, the commit and its time (RFC 3339).
var stampedVersion, stampedCommit, stampedTime string

// readVersion returns the version that was stamped on the binary, else the one that the Go toolchain recorded.
func readVersion() versionInfo {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return versionInfo{Version: "unknown"}
	}
	return versionOf(build).stamped(stampedVersion, stampedCommit, stampedTime)
}

// stamped replaces what is stamped. A stamp is of a clean tree.
func (v versionInfo) stamped(version, commit, time string) versionInfo {
	if version != "" {
		v.Version, v.Modified = version, false
	}
	v.Revision, v.Time = cmp.Or(commit, v.Revision), cmp.Or(time, v.Time)
	return v
}

// versionOf returns the version of Holdfast in a binary, which may be that of another module.
func versionOf(build *debug.BuildInfo) versionInfo {
	v := versionInfo{Version: build.Main.Version, Go: build.GoVersion}
	for _, dep := range build.Deps {
		if dep.Path == module {
			return versionInfo{Version: dep.Version, Go: build.GoVersion}
		}
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v versionInfo) String() string {
	words := []string{"holdfast", v.Version}
	if v.Version == "" || v.Version == "(devel)" {
		words[1] = "development build"
	}
	if v.Revision != "" {
		words = append(words, "revision", v.Revision)
	}
	if v.Modified {
		words = append(words, "with local changes")
	}
	if v.Time != "" {
		words = append(words, "of", v.Time)
	}
	return strings.Join(append(words, v.Go), " ")
}

func (c *command) version() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version of this binary",
		Long:    `Show the version of this binary, the revision of its source, and the version of Go.`,
		Example: `  holdfast version`,
	}
	cmd.RunE = func(*cobra.Command, []string) error {
		v := readVersion()
		return c.print(v, [][]string{{v.String()}})
	}
	return cmd
}

// Version returns the version of this binary.
func Version() string { return readVersion().Version }

// Commit returns the commit of this binary's source, or "".
func Commit() string {
	v := readVersion()
	if v.Modified && v.Revision != "" {
		return v.Revision + "-dirty"
	}
	return v.Revision
}
