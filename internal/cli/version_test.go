package cli

import (
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

func TestVersionIsWhatTheBuildWasTold(t *testing.T) {
	t.Parallel()
	recorded := versionOf(&debug.BuildInfo{
		GoVersion: "go1.26", Main: debug.Module{Path: module, Version: "(devel)"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	})
	require.Equal(t, recorded, recorded.stamped("", "", ""))
	require.Equal(t, "holdfast v1.2.3 revision 0123abc of 2026-11-27T00:00:00Z go1.26",
		recorded.stamped("v1.2.3", "0123abc", "2026-11-27T00:00:00Z").String())
	require.Equal(t, "holdfast v1.2.3 revision abc with local changes go1.26", recorded.stamped("v1.2.3", "", "").String())
}
