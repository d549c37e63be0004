package documents

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// systemd accepts the unit and finds little that it could still take away. A machine that boots with systemd is not needed.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	unit := string(repository(t, "deploy/systemd/holdfast.service"))
	require.Contains(t, unit, "ExecStart=/usr/bin/holdfast serve --config /etc/holdfast/holdfast.yaml\n")
	stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(unit)
	require.NotNil(t, stop)
	longest, err := time.ParseDuration(stop[1] + "s")
	require.NoError(t, err)
	require.Equal(t, readCompose(t).Services["server"].StopGracePeriod, longest, "as in docker-compose.yml")
	require.Regexp(t, `\(../deploy/systemd/holdfast\.service\)`, string(repository(t, "docs/deployment.md")))

	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze (Debian: apt-get install systemd)")
	}
	// It would miss the program.
	file := filepath.Join(t.TempDir(), "holdfast.service")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(unit, "/usr/bin/holdfast ", "/bin/true ")), 0o600))
	out, err := exec.CommandContext(t.Context(), program, "verify", "--man=no", "--recursive-errors=no", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), file, "warnings")
	// 1.4 with systemd 252, of 10 for a service without any settings; the threshold has one more digit.
	out, err = exec.CommandContext(t.Context(), program, "security", "--no-pager", "--offline=true", "--threshold=20", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
