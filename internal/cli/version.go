package cli

import (
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

// readVersion returns the version that the Go toolchain recorded in the binary.
func readVersion() versionInfo {
	v := versionInfo{Version: "unknown"}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version, v.Go = build.Main.Version, build.GoVersion
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
