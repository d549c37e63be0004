package documents

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

const troubleshootPage = "../../docs/troubleshoot.md"

var (
	firstCell = regexp.MustCompile(`(?m)^\| ([^|]+) \|`)
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	metric    = regexp.MustCompile("`(holdfast_[a-z_]+)`")
)

// Texts of the server that docs/troubleshoot.md quotes are in its sources: code with a space, in the first column of a table. The
// parts of a text around … are in one file.
func TestTroubleshootQuotesTheServer(t *testing.T) {
	t.Parallel()
	var sources []string
	require.NoError(t, filepath.WalkDir("../../internal", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		sources = append(sources, string(source))
		return err
	}))
	said := func(text string) bool {
		for _, source := range sources {
			found := true
			for part := range strings.SplitSeq(text, "…") {
				found = found && strings.Contains(source, strings.TrimSpace(part))
			}
			if found {
				return true
			}
		}
		return false
	}
	require.False(t, said("the scope … is gone"), "it can fail")

	page := string(repository(t, "docs/troubleshoot.md"))
	quoted := 0
	for _, cell := range firstCell.FindAllStringSubmatch(page, -1) {
		for _, span := range codeSpan.FindAllStringSubmatch(cell[1], -1) {
			if strings.Contains(span[1], " ") {
				quoted++
				require.True(t, said(span[1]), "no source has %q", span[1])
			}
		}
	}
	require.Greater(t, quoted, 50)

	metrics := string(repository(t, "docs/metrics.md"))
	for _, m := range metric.FindAllStringSubmatch(page, -1) {
		require.Contains(t, metrics, "`"+m[1]+"`")
	}
}

// TestTroubleshootCommands runs the commands of docs/troubleshoot.md beside a server with a failed and a parked task. The store tests its
// SQL (TestTroubleshootingQuestions).
func TestTroubleshootCommands(t *testing.T) {
	t.Parallel()
	// A failed task with a cause that its client does not read, and one that waits for its client.
	script := `
holdfast() { "$BINARY" "$@"; }
"$BINARY" > first.log 2>&1 &
until holdfast ready > /dev/null 2>&1; do kill -0 $!; sleep 0.2; done
holdfast send --no-input "ask:Where to?" > said.txt || [ $? = 4 ]
PARKED=$(sed -n "s/^task *//p" said.txt)
holdfast send "crash" > said.txt || [ $? = 3 ]
FAILED=$(sed -n "s/^task *//p" said.txt)
`
	commands := blocksOf(t, troubleshootPage, "sh")
	for _, b := range commands {
		of := "PARKED"
		if b.section == "First" {
			of = "FAILED"
		}
		script += "TASK=$" + of + "; echo '== '\n" + b.text
	}
	public, admin := clustertest.Reserve(t), clustertest.Reserve(t)
	script = strings.NewReplacer("127.0.0.1:8080", public, "127.0.0.1:9090", admin).Replace(script) + "kill $!; wait\n"
	out := paste(t, script, "HOLDFAST_URL=http://"+public, "HOLDFAST_LISTEN="+public, "HOLDFAST_ADMIN_LISTEN="+admin,
		"HOLDFAST_GRPC_LISTEN=127.0.0.1:0")
	said := map[string]string{}
	answers := strings.Split(out, "== \n")[1:]
	require.Len(t, answers, len(commands), out)
	for i, b := range commands {
		said[b.section] += answers[i]
	}
	require.Contains(t, said["First"], " 0 fail")
	require.Contains(t, said["First"], `"name":"database","status":"ok"`)
	require.Contains(t, said["First"], "The agent crashed.")
	require.Contains(t, said["First"], "panic: demo: crash, as the script asked", "the cause")
	require.Contains(t, said["A client is refused"], "holdfast_limited_total")
	require.Contains(t, said["A stream is silent, late or ends"], "TASK_STATE_INPUT_REQUIRED")
	require.Contains(t, said["Webhooks do not arrive"], "TASK")
	require.Contains(t, said["The server does not start"], "no mistakes")
	require.Contains(t, said["Memory"], "holdfast_memory_limit_bytes")
}
