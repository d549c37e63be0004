package documents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The image of a release is that of the repository, with a binary that is already built.
func TestReleaseImage(t *testing.T) {
	t.Parallel()
	ends := map[string]string{}
	for _, file := range []string{"Dockerfile", "deploy/release.Dockerfile"} {
		raw, err := os.ReadFile(filepath.Join("../..", file))
		require.NoError(t, err)
		_, end, ok := strings.Cut(string(raw), "\nFROM scratch AS holdfast\n")
		require.True(t, ok, file)
		var lines []string
		for _, line := range strings.Split(end, "\n") {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "COPY") && !strings.HasPrefix(line, "ARG") {
				lines = append(lines, line)
			}
		}
		ends[file] = strings.Join(lines, "\n")
		for _, target := range []string{" /etc/ssl/certs/", " /holdfast", " /etc/holdfast/holdfast.yaml"} {
			require.Regexp(t, `(?m)^COPY .*`+target+`$`, end, file)
		}
	}
	require.Equal(t, ends["Dockerfile"], ends["deploy/release.Dockerfile"])
}
