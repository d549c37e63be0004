package registry_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestCodecsAreAtTheirIndex(t *testing.T) {
	t.Parallel()
	for i, c := range registry.All() {
		require.EqualValues(t, i, c.ID())
		require.Equal(t, c, registry.ByVersion(c.Version()))
	}
	require.Nil(t, registry.ByVersion("7.0"))
}

// testdata/pick.txt has the cases.
func TestPick(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/pick.txt")
	require.NoError(t, err)
	cases := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] == "#" {
			continue
		}
		require.Len(t, f, 5, line)
		cases++
		method, header, pin := said(f[0]), said(f[1]), said(f[2])
		for strict, want := range map[bool]string{false: f[3], true: f[4]} {
			choice, err := registry.Pick(method, header, pin, strict)
			got := ""
			switch {
			case errors.Is(err, registry.ErrMethod):
				got = "method"
			case err != nil:
				require.ErrorIs(t, err, task.Version, line)
				require.NotNil(t, choice.Codec, "the dialect of the error")
				got = "version"
			case choice.Ambiguous:
				require.Equal(t, "0.3", choice.Codec.Version(), line)
				got = "any"
			default:
				got = choice.Codec.Version()
			}
			require.Equal(t, want, got, "%s, strict %v", line, strict)
		}
	}
	require.Greater(t, cases, 40)
}

func said(field string) string {
	if field == "-" {
		return ""
	}
	return strings.ReplaceAll(field, "_", " ")
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		version, header string
		lenient, strict bool
	}{
		{"1.0", "1.0", true, true},
		{"1.0", "1.0.1", true, true},
		{"1.0", "", true, false},
		{"1.0", "0.3", true, false},
		{"1.0", "99.0", false, false},
		{"0.3", "", true, true},
		{"0.3", "0.2.6", true, true},
		{"0.3", "0.3.0", true, true},
		{"0.3", "1.0", true, false},
		{"0.3", "latest", false, false},
	} {
		for strict, want := range map[bool]bool{false: tt.lenient, true: tt.strict} {
			err := registry.Admit(registry.ByVersion(tt.version), tt.header, "path", strict)
			if want {
				require.NoError(t, err, "%+v", tt)
			} else {
				require.ErrorIs(t, err, task.Version, "%+v", tt)
			}
		}
	}
}
