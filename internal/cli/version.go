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

// Builds without the repository, such as that of the image, set these with -ldflags -X.
var version, commit, date string

// readVersion returns the version that the build was told, else the one that the Go toolchain recorded in the binary.
func readVersion() versionInfo {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return versionInfo{Version: "unknown"}
	}
	return versionOf(build).stamped(version, commit, date)
}

// stamped returns v with what the build was told. A commit from there replaces all that the toolchain recorded of one.
func (v versionInfo) stamped(version, commit, date string) versionInfo {
	v.Version = cmp.Or(version, v.Version)
	if commit != "" {
		v.Revision, v.Time, v.Modified = commit, date, false
	}
	v.Time = cmp.Or(date, v.Time)
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
		Use:   "version",
		Short: "Show the version of this binary",
		Long: `Show the version of this binary, the revision of its source, and the version of Go that
built it.`,
		Example: `  holdfast version
  holdfast version -o json`,
		Args: argCount(0, 0),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if *format == outputJSON {
			return printJSON(c.Out, readVersion())
		}
		p := &printer{w: c.Out}
		p.line("%s", readVersion())
		return p.err
	}
	return cmd
}

// Version returns the version of this binary.
func Version() string { return readVersion().Version }
