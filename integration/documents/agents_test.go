package documents

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// inFront is the part of the tour with an official Python agent and a model.
const inFront = "In front of what you have"

// venv makes the tour's virtual environment in a cache: if its packages are there, pip needs no network. One test at a time fills it.
func venv(t *testing.T) string {
	t.Helper()
	manifest, err := os.ReadFile("../../examples/python/a2a/requirements.txt")
	require.NoError(t, err)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	sum := sha256.Sum256(manifest)
	return fmt.Sprintf(`
python3() {
  case "$*" in
    "-m venv .holdfast/venv")
      VENV=%q
      mkdir -p "$(dirname "$VENV")"
      exec 9> "$VENV.lock"
      flock 9
      if [ ! -e "$VENV/done" ]; then
        rm -rf "$VENV"
        command python3 -m venv "$VENV"
        "$VENV/bin/pip" install --quiet --requirement examples/python/a2a/requirements.txt
        touch "$VENV/done"
      fi
      exec 9>&-
      ln -s "$VENV" .holdfast/venv;;
    *) command python3 "$@";;
  esac
}
`, filepath.Join(cache, "holdfast-test", "venv-"+hex.EncodeToString(sum[:6])))
}

// atOwnPorts replaces each port of this machine in a script.
func atOwnPorts(t *testing.T, ports ...string) *strings.Replacer {
	t.Helper()
	var pairs []string
	for _, port := range ports {
		addr := clustertest.Reserve(t)
		_, own, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		pairs = append(pairs, ":"+port, ":"+own, ".py "+port, ".py "+own, ", "+port, ", "+own)
	}
	return strings.NewReplacer(pairs...)
}

// TestREADMETourInFront pastes the part of the tour that puts Holdfast in front of an agent of the official Python SDK and
// of a model.
func TestREADMETourInFront(t *testing.T) {
	t.Parallel()
	// The agent counts slowly, so that a busy machine also cuts its stream in the middle.
	script := "make() { mkdir -p bin .holdfast; ln -sf \"$BINARY\" bin/holdfast; sed 's/sleep(0.2)/sleep(0.5)/' examples/python/a2a/agent.py > .holdfast/agent.py; }\n" + venv(t)
	tour := tourOf(t)
	functions, _, _ := strings.Cut(tour[0].text, "\na2a /") // they save typing
	script += functions + "\n"
	started := false
	for _, b := range tour {
		switch {
		case b.topic == "Kill it" && !started:
			started = true
			script += b.text
		case b.topic == inFront:
			script += "\necho '== '\n" + b.text
		}
	}
	require.True(t, started, "the tour has no step that starts the server")
	public := clustertest.Reserve(t)
	script = strings.NewReplacer("127.0.0.1:8080", public, "python examples/python/a2a/agent.py", "python .holdfast/agent.py", "--max-time 2", "--max-time 6").
		Replace(script) + "\nkill $COUNTER $MODEL $SERVER; wait\n"
	out := paste(t, atOwnPorts(t, "9999", "9998").Replace(script),
		"HOLDFAST_LISTEN="+public, "HOLDFAST_ADMIN_LISTEN="+clustertest.Reserve(t), "HOLDFAST_GRPC_LISTEN=127.0.0.1:0")
	answers := strings.Split(out, "== \n")
	require.Len(t, answers, 4, "output:\n%s", out)

	counted := answers[2]
	require.Contains(t, counted, "timed out", "the first stream ended early")
	var said strings.Builder
	for _, m := range regexp.MustCompile(`"artifactId":"numbers","parts":\[\{"text":"([^"]*)"`).FindAllStringSubmatch(counted, -1) {
		said.WriteString(m[1])
	}
	var want strings.Builder
	for n := range 20 {
		want.WriteString(strconv.Itoa(n+1) + " ")
	}
	require.Equal(t, want.String(), said.String(), "each number once; all of it:\n%s", counted)
	require.Equal(t, 1, strings.Count(counted, "executing: count"), "the agent ran once")
	require.Contains(t, counted, `"state":"TASK_STATE_COMPLETED"`)

	require.Contains(t, answers[3], `"text": "You have said: I am Ada. "`)
	require.Contains(t, answers[3], `"text": "You have said: I am Ada, then I live in Oslo. "`)
}

// TestPagesOfAgents does what the page of each kind of agent says. Blocks with a file name are files. Each line of the first
// block of commands has a terminal of its own, and the text after a further block is what it prints. The pages about servers
// that the reader has get one from the examples. (TestGuideHasGoPrograms is about agents in Go.)
func TestPagesOfAgents(t *testing.T) {
	t.Parallel()
	model := regexp.MustCompile(`base_url: .*`)
	for page, c := range map[string]struct {
		ports  []string
		before string // commands
		prints string // what commands print, if the page does not say it
	}{
		"http":    {ports: []string{"9000"}},
		"command": {},
		"a2a": {
			ports: []string{"9999"},
			before: venv(t) + "mkdir -p .holdfast; python3 -m venv .holdfast/venv\n" +
				".holdfast/venv/bin/pip install --quiet --requirement examples/python/a2a/requirements.txt\n" +
				".holdfast/venv/bin/python examples/python/a2a/agent.py 9999 > agent.log 2>&1 &\n" +
				"until curl -sf -o /dev/null http://127.0.0.1:9999/.well-known/agent-card.json; do kill -0 $!; sleep 0.2; done\n",
			prints: "18 19 20",
		},
		"openai": {
			ports:  []string{"9998"},
			before: "python3 examples/python/model.py 9998 &\nuntil curl -s -o /dev/null http://127.0.0.1:9998/; do kill -0 $!; sleep 0.2; done\n",
			prints: "You have said: What do you sell?",
		},
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			script := c.before + `
holdfast() {
  case "$1" in
    serve) exec "$BINARY" "$@";;
    *) "$BINARY" "$@" > said.txt || { CODE=$?; [ $CODE -ge 3 ] || exit $CODE; }; cat said.txt;;
  esac
  TASK=$(sed -n "s/^task *//p" said.txt)
}
`
			var want []string
			commands := 0
			for _, b := range allBlocks(t, "../../docs/agents/"+page+".md") {
				language, file, _ := strings.Cut(b.language, " ")
				switch {
				case file != "" && (language == "yaml" || language == "python"):
					script += "cat > " + file + " <<'END OF FILE'\n" + model.ReplaceAllString(b.text, "base_url: http://127.0.0.1:9998/v1") + "END OF FILE\n"
				case b.language == "sh" && commands == 0:
					commands++
					for line := range strings.Lines(b.text) {
						script += "{ " + strings.TrimSpace(line) + "; } >> terminals.log 2>&1 &\n"
					}
					script += "until \"$BINARY\" ready > /dev/null 2>&1; do kill -0 $! || { cat terminals.log; exit 1; }; sleep 0.2; done\n"
				case b.language == "sh":
					commands++
					script += "echo '== '\n" + b.text
				case b.language == "text":
					want = append(want, b.text)
				}
			}
			require.Greater(t, commands, 1, "the page has no commands")
			script += "kill $(jobs -p); wait\n"
			public := clustertest.Reserve(t)
			out := paste(t, atOwnPorts(t, c.ports...).Replace(script), "HOLDFAST_URL=http://"+public,
				"HOLDFAST_LISTEN="+public, "HOLDFAST_ADMIN_LISTEN="+clustertest.Reserve(t), "HOLDFAST_GRPC_LISTEN=127.0.0.1:0")
			said := strings.Split(out, "== \n")[1:]
			require.Len(t, said, commands-1, out)
			if c.prints != "" {
				require.Contains(t, said[0], c.prints)
				return
			}
			require.Len(t, want, len(said), "each block of commands says what it prints")
			ids := regexp.MustCompile(`(?m)^(task|context) .*\n`)
			for i := range said {
				require.Equal(t, want[i], ids.ReplaceAllString(said[i], ""))
			}
		})
	}
}
