package documents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// block is a fenced block of a document, with the headings above it.
type block struct {
	section, topic string // of level two and three
	language, text string
}

// blocksOf finds the blocks of one language.
func blocksOf(t *testing.T, file, language string) []block {
	t.Helper()
	return slices.DeleteFunc(allBlocks(t, file), func(b block) bool { return b.language != language })
}

func allBlocks(t *testing.T, file string) []block {
	t.Helper()
	doc, err := os.ReadFile(file)
	require.NoError(t, err)
	var out []block
	var at block
	inside := false
	for line := range strings.Lines(string(doc)) {
		switch text := strings.TrimSpace(line); {
		case strings.HasPrefix(text, "```"):
			if inside = !inside; inside {
				at.language, at.text = text[3:], ""
			} else {
				out = append(out, at)
			}
		case inside:
			at.text += line
		case strings.HasPrefix(text, "## "):
			at.section, at.topic = text[3:], ""
		case strings.HasPrefix(text, "### "):
			at.topic = text[4:]
		}
	}
	require.False(t, inside, "%s: a block is not closed", file)
	return out
}

// aroundTour gives the tour the setup of a newcomer: a clone, `make run` in another terminal, and Ctrl-C there.
const (
	beforeTour = `
make() { mkdir -p bin; ln -sf "$BINARY" bin/holdfast; }
make build
bin/holdfast > first.log 2>&1 & FIRST=$!
until bin/holdfast ready > /dev/null 2>&1; do
  kill -0 $FIRST
  sleep 0.1
done
`
	ctrlC = `
kill $FIRST
wait $FIRST
`
)

// cutAfter makes curl leave a stream after so many events, where a page says after how long: a busy machine needs longer.
func cutAfter(events string) string {
	return `
curl() {
  if [[ "$*" != *--max-time* ]]; then command curl "$@"; return; fi
  local SEEN=0
  while IFS= read -r LINE; do
    printf '%s\n' "$LINE"
    if [[ $LINE == data:* ]]; then SEEN=$((SEEN + 1)); fi
    if [[ -z $LINE && $SEEN -ge ` + events + ` ]]; then break; fi
  done < <(exec curl "$@")
  kill $! 2> /dev/null || true
}
`
}

const patient = "limits: {max_block: 1h}\n"

var maxTime = regexp.MustCompile(`--max-time [0-9.]+`)

// TestTour pastes the tour into a shell.
func TestTour(t *testing.T) {
	t.Parallel()
	tour := slices.DeleteFunc(blocksOf(t, "../../docs/tour.md", "sh"), func(b block) bool { return b.section != "Tour" })
	require.NotEmpty(t, tour)
	public, admin := nettest.Reserve(t), nettest.Reserve(t)
	var script strings.Builder
	script.WriteString(cutAfter("4") + beforeTour)
	killing := false
	for i, b := range tour {
		if b.topic == "Kill it" && !killing {
			killing = true
			script.WriteString(ctrlC)
		}
		fmt.Fprintf(&script, "echo; echo '== %d'\n%s", i, b.text)
	}
	require.True(t, killing, "the tour has no step that kills the server")
	pasted := strings.NewReplacer("127.0.0.1:8080", public,
		// The kill must come before the task has ended, also on a busy machine.
		"size=32 delay=200ms", "size=32 delay=700ms").Replace(script.String())
	pasted += "\nkill $SERVER; wait\n"

	out := paste(t, pasted, "HOLDFAST_LISTEN="+public, "HOLDFAST_ADMIN_LISTEN="+admin, "HOLDFAST_GRPC_LISTEN=127.0.0.1:0")
	said := strings.Split(out, "\n== ")[1:]
	require.Len(t, said, len(tour), "answers:\n%s", out)
	answers := map[string][]string{}
	for i, b := range tour {
		answers[b.topic] = append(answers[b.topic], strings.TrimPrefix(said[i], strconv.Itoa(i)+"\n"))
	}
	checkTour(t, answers)
}

// TestCtrlCEndsMakeRun presses Ctrl-C on a terminal: make and the server, in one process group, get the signal.
func TestCtrlCEndsMakeRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o700))
	require.NoError(t, os.Symlink(clustertest.Binary(t), filepath.Join(dir, "bin", "holdfast")))
	makefile, err := filepath.Abs("../../Makefile")
	require.NoError(t, err)
	cmd := exec.CommandContext(waittest.Context(t), "make", "--file", makefile, "--old-file", "build", "run")
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(), "HOLDFAST_DATABASE_URL=" + storetest.New(t).URL,
		"HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_GRPC_LISTEN=127.0.0.1:0", "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := os.Create(filepath.Join(dir, "said.log"))
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	said := func() string {
		text, err := os.ReadFile(out.Name())
		require.NoError(t, err)
		return string(text)
	}
	waittest.Eventually(t, "the server runs", func() error {
		return waittest.Unless(strings.Contains(said(), "server ready"), "%s", said())
	})
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	_ = cmd.Wait() // make ends by the signal
	require.NoError(t, out.Close())
	require.Contains(t, said(), "stopped")
	require.NotContains(t, said(), "***")
	require.NotContains(t, said(), "Error")
}

// checkTour compares the answers, by topic, with what the tour says about them.
func checkTour(t *testing.T, answers map[string][]string) {
	t.Helper()
	first := answers[""]
	require.Len(t, first, 2)
	require.Contains(t, first[0], `"state": "TASK_STATE_COMPLETED"`)
	require.Contains(t, first[0], `"text": "hello"`)
	require.Equal(t, []int{1, 2, 3, 4, 5, 6}, streamIDs(t, first[1]))
	require.Contains(t, first[1], `"state":"TASK_STATE_COMPLETED"`)

	cut := answers["Cut a stream, and resume it"]
	require.Len(t, cut, 1)
	require.Equal(t, indexes(1, 13), streamIDs(t, cut[0]), "the two streams together are the whole log")
	require.Equal(t, 1, strings.Count(cut[0], `"state":"TASK_STATE_COMPLETED"`), "only the second stream has the final event")

	kill := answers["Kill it"]
	require.Len(t, kill, 4)
	require.Equal(t, 4, strings.Count(kill[1], "data: "), "the stream began before the server was killed")
	require.NotContains(t, kill[1], `"final":true`)
	require.Contains(t, kill[2], `"state": "working"`, "the task agrees with the log")
	require.Contains(t, kill[2], `"state":"completed"`)
	for i := range 20 {
		require.Regexp(t, fmt.Sprintf(`"artifact":.*"text":"%08d `, i), kill[2])
	}
	resumed := streamIDs(t, kill[2])
	require.Equal(t, []int{3, 24}, []int{resumed[0], resumed[len(resumed)-1]}, "20 chunks, two statuses, a message and a lost attempt")
	require.Len(t, resumed, 21, "the lost attempt is not shown, and no event is shown twice")
	require.Regexp(t, `run attempt 1 lost`, kill[3])
	require.Contains(t, kill[3], "[24]")
}

// paste runs a script with `set -e` in a fresh directory that has the examples.
func paste(t *testing.T, script string, env ...string) string {
	t.Helper()
	// When root runs the tests, PostgreSQL runs as another user, which must be able to enter the directory.
	dir, err := os.MkdirTemp("", "holdfast-readme-") //nolint:usetesting // t.TempDir is private
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	examples, err := filepath.Abs("../../examples")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(examples, filepath.Join(dir, "examples")))

	// A busy machine may need longer than the time after which the server answers a blocking request.
	limits := filepath.Join(dir, "limits.yaml")
	require.NoError(t, os.WriteFile(limits, []byte(patient), 0o644))
	cmd := exec.CommandContext(context.Background(), "bash", "-euo", "pipefail")
	cmd.Dir = dir
	script = strings.Replace(script, "worker: {lease_ttl: 5s}\n", patient+"worker: {lease_ttl: 5s}\n", 1)
	cmd.Stdin = strings.NewReader(maxTime.ReplaceAllString(script, "--max-time 3600"))
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(), "BINARY=" + clustertest.Binary(t), "HOLDFAST_CONFIG=" + limits,
	}, env...)
	// All processes that it starts are in its group, except PostgreSQL.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	file, err := os.Create(filepath.Join(dir, "said.log"))
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = file, file // not a pipe: a failed script leaves processes that would keep it open
	require.NoError(t, cmd.Start())
	group := cmd.Process.Pid
	t.Cleanup(func() {
		_ = syscall.Kill(-group, syscall.SIGKILL)
		clustertest.DropDatabase(t, dir)
		_ = os.RemoveAll(dir)
	})
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	waittest.Eventually(t, "the script ends", func() error {
		select {
		case err = <-ended:
			return nil
		default:
			said, _ := file.Stat()
			return fmt.Errorf("it has printed %d bytes", said.Size())
		}
	})
	_ = file.Close()
	out, readErr := os.ReadFile(file.Name())
	require.NoError(t, readErr)
	if err != nil {
		for _, name := range []string{"first.log", ".holdfast/tour.log"} {
			if log, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				t.Logf("%s:\n%s", name, log)
			}
		}
		require.NoError(t, err, "output of the tour:\n%s", out)
	}
	waittest.Eventually(t, "the servers have disconnected from the database", func() error {
		if _, err := os.Stat(filepath.Join(dir, ".holdfast/postgres/data/postmaster.pid")); err == nil {
			return fmt.Errorf("postgresql runs")
		}
		return nil
	})
	return string(out)
}

var idLine = regexp.MustCompile(`(?m)^id: (\d+)-[0-9a-f]+$`)

func streamIDs(t *testing.T, out string) []int {
	t.Helper()
	var ids []int
	for _, m := range idLine.FindAllStringSubmatch(out, -1) {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		ids = append(ids, n)
	}
	require.NotEmpty(t, ids, "not a stream:\n%s", out)
	return ids
}

func indexes(first, last int) []int {
	var out []int
	for i := first; i <= last; i++ {
		out = append(out, i)
	}
	return out
}

// installed makes the tour's virtual environment in a cache: if its packages are there, pip needs no network. One process at a time fills it.
var installed = sync.OnceValues(func() (venv string, err error) {
	const requirements = "../../examples/python/a2a/requirements.txt"
	manifest, err := os.ReadFile(requirements)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(manifest)
	venv = filepath.Join(cache, "holdfast-test", "venv-"+hex.EncodeToString(sum[:6]))
	return venv, exec.Command("bash", "-euc", `
mkdir -p "$(dirname "$1")"
exec 9> "$1.lock"
flock 9
if [ ! -e "$1/done" ]; then
  rm -rf "$1"
  python3 -m venv "$1"
  "$1/bin/pip" install --quiet --requirement "$2"
  touch "$1/done"
fi`, "install", venv, requirements).Run()
})

// venv leads the making of the tour's virtual environment to the installed one.
func venv(t *testing.T) string {
	t.Helper()
	dir, err := installed()
	require.NoError(t, err)
	return fmt.Sprintf(`
python3() { if [ "$*" = "-m venv .holdfast/venv" ]; then ln -s %q .holdfast/venv; else command python3 "$@"; fi; }
`, dir)
}

// atOwnPorts replaces each port of this machine in a script.
func atOwnPorts(t *testing.T, ports ...string) *strings.Replacer {
	t.Helper()
	var pairs []string
	for _, port := range ports {
		addr := nettest.Reserve(t)
		_, own, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		for _, before := range []string{":", ".py ", ", ", "--http "} {
			pairs = append(pairs, before+port, before+own)
		}
	}
	return strings.NewReplacer(pairs...)
}
