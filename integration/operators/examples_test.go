package operators

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// notRun are the beginnings of the examples that a test cannot run: those that serve, need other hosts or files of the machine, change the
// schema, or call programs that are not here. The test of the tree parses them (TestEveryVerbTeaches).
var notRun = []string{
	"holdfast serve", "holdfast dev", "holdfast migrate --database-url", "holdfast config check --config new.yaml",
	"holdfast ready", "holdfast secret-keys reseal", "holdfast workers retire", "holdfast api-keys revoke", "holdfast push test",
	"holdfast tasks tail --", "holdfast tasks tail\n", "holdfast completion", "holdfast stream --task", "holdfast send --task", "holdfast send \"Read this\"", "holdfast send -H", "holdfast card --url https://agents.example.com --signing-keys", "holdfast bench",
	"holdfast agents list --server", "holdfast tasks cancel --agent", "holdfast tasks retry --agent", "holdfast torture http://a:8080", "holdfast torture https://agents.example.com", "curl ", "echo ",
}

// The examples of the helps run as they are, beside a server: with a task, a webhook and agents that they name.
func TestExamplesRun(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config := clustertest.Replace(clustertest.Settings, "name: demo\n", "name: demo\n    default: true\n") +
		"  - {name: weather, executor: {kind: demo}}\npush: {allow_private: true}\n"
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config})
	sent := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_URL=" + a.URL}, "send", "--agent", "weather", "echo:hello", "--listen")
	require.Zero(t, sent.Code, sent.Err)
	id := regexp.MustCompile(`(?m)^task +(\S+)`).FindStringSubmatch(sent.Out)[1]
	page, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	_, verbs, _ := strings.Cut(string(page), "\n## Verbs\n")
	dir := t.TempDir()
	require.NoError(t, os.Symlink(clustertest.Binary(t), filepath.Join(dir, "holdfast")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "city.json"), []byte(`{"city": "Oslo"}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "holdfast.yaml"), []byte(config), 0o600))
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(verbs, -1) {
		for _, line := range strings.Split(strings.ReplaceAll(block[1], "|\n", "| "), "\n") {
			if line == "" || skipped(line+"\n") {
				continue
			}
			ran++
			line = strings.NewReplacer("0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f", id, "order-7 audit", id+" holdfast-cli", "order-7", id, "https://agents.example.com", a.URL,
				"http://127.0.0.1:8080", a.URL, "--after 40", "--after 1").Replace(line)
			cmd := exec.CommandContext(waittest.Context(t), "bash", "-c", "set -o pipefail\n"+line)
			cmd.Dir, cmd.WaitDelay = dir, time.Minute
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOLDFAST_URL="+a.URL, "HOLDFAST_CONFIG=holdfast.yaml")
			cmd.Env = append(cmd.Env, db.Env()...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				// A task that has ended is not canceled (3), not retried (1), and a question waits (4). The addresses that doctor
				// looks at may be those of another program.
				var ended *exec.ExitError
				require.ErrorAs(t, err, &ended, "%s: %s", line, out)
				want, ok := map[string]int{"holdfast tasks cancel": 3, "holdfast tasks retry": 1, "holdfast send \"ask:": 4, "holdfast doctor": 1}[beginning(line)]
				require.True(t, ok && ended.ExitCode() == want, "%s exits with %d: %s", line, ended.ExitCode(), out)
			}
		}
	}
	require.Greater(t, ran, 40)
}

func beginning(line string) string {
	for _, begins := range []string{"holdfast tasks cancel", "holdfast tasks retry", "holdfast send \"ask:", "holdfast doctor"} {
		if strings.HasPrefix(line, begins) {
			return begins
		}
	}
	return ""
}

func skipped(line string) bool {
	for _, begins := range notRun {
		if strings.HasPrefix(line, begins) {
			return true
		}
	}
	return false
}
