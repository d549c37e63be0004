package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionIsThatOfHoldfastInAnotherModule(t *testing.T) {
	t.Parallel()
	v := versionOf(&debug.BuildInfo{
		GoVersion: "go1.26", Main: debug.Module{Path: "example.com/shout", Version: "v0.1.0"},
		Deps:     []*debug.Module{{Path: "example.com/other", Version: "v3.0.0"}, {Path: module, Version: "v1.2.3"}},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "of the other module"}},
	})
	require.Equal(t, "holdfast v1.2.3 go1.26", v.String())
}

func TestStampsReplaceTheRecordedVersion(t *testing.T) {
	t.Parallel()
	recorded := versionInfo{Version: "(devel)", Revision: "abc", Modified: true, Time: "2026-01-01T00:00:00Z", Go: "go1.26"}
	require.Equal(t, recorded, recorded.stamped("", "", ""))
	require.Equal(t, "holdfast v1.2.3 revision def of 2026-11-27T00:00:00Z go1.26",
		recorded.stamped("v1.2.3", "def", "2026-11-27T00:00:00Z").String())
}

// The linker ignores a name that does not exist, so the files that stamp must name these variables.
func TestReleaseFilesStampTheVersion(t *testing.T) {
	t.Parallel()
	for _, file := range []string{".goreleaser.yaml", "Dockerfile"} {
		text, err := os.ReadFile(filepath.Join("../..", file))
		require.NoError(t, err)
		var flags []string
		for _, m := range regexp.MustCompile(`-X (\S+/internal/cli\.\w+)=`).FindAllStringSubmatch(string(text), -1) {
			flags = append(flags, m[1])
		}
		require.Equal(t, []string{module + "/internal/cli.stampedVersion", module + "/internal/cli.stampedCommit", module + "/internal/cli.stampedTime"}, flags, file)
	}
	source, err := os.ReadFile("version.go")
	require.NoError(t, err)
	require.Contains(t, string(source), "var stampedVersion, stampedCommit, stampedTime string\n")
}
