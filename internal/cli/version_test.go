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
