package documents

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
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
	noPSQL = `
psql() { echo "psql is not installed"; }
`
)

// TestREADMETour pastes the tour of the README and its rest into a shell, without the part that installs packages.
func TestREADMETour(t *testing.T) {
	t.Parallel()
	tour := tourOf(t, inFront)
	public, admin, agent := clustertest.Reserve(t), clustertest.Reserve(t), clustertest.Reserve(t)
	var script strings.Builder
	script.WriteString(beforeTour + "COUNTER= MODEL=\n")
	_, lookErr := exec.LookPath("psql")
	if lookErr != nil {
		script.WriteString(noPSQL)
	}
	killing := false
	for i, b := range tour {
		if b.topic == "Kill it" && !killing {
			killing = true
			script.WriteString(ctrlC)
		}
		fmt.Fprintf(&script, "echo; echo '== %d'\n%s", i, b.text)
	}
	require.True(t, killing, "the tour has no step that kills the server")
	_, port, err := net.SplitHostPort(agent)
	require.NoError(t, err)
	pasted := strings.NewReplacer("127.0.0.1:8080", public, "127.0.0.1:9000", agent, "http_agent.py 9000", "http_agent.py "+port,
		// Longer, so that a busy machine also cuts a stream in the middle.
		"--max-time 1.5", "--max-time 5", "delay=200ms", "delay=700ms", "delay=300ms", "delay=1s").Replace(script.String())

	out := paste(t, pasted, "HOLDFAST_LISTEN="+public, "HOLDFAST_ADMIN_LISTEN="+admin, "HOLDFAST_GRPC_LISTEN=127.0.0.1:0")
	said := strings.Split(out, "\n== ")[1:]
	require.Len(t, said, len(tour), "answers:\n%s", out)
	answers := map[string][]string{}
	for i, b := range tour {
		answers[b.topic] = append(answers[b.topic], strings.TrimPrefix(said[i], strconv.Itoa(i)+"\n"))
	}
	checkTour(t, answers, lookErr == nil)
}

// TestTheTourNoticesTheFirstServer pastes the step that starts a server without Ctrl-C before it.
func TestTheTourNoticesTheFirstServer(t *testing.T) {
	t.Parallel()
	var step string
	for _, b := range tourOf(t) {
		if b.topic == "Kill it" {
			step = b.text
			break
		}
	}
	step, serves := strings.CutSuffix(step, "\nserve\n")
	require.True(t, serves, "the step starts a server")
	out := paste(t, beforeTour+step+"\nserve || echo refused\n"+ctrlC,
		"HOLDFAST_LISTEN="+clustertest.Reserve(t), "HOLDFAST_ADMIN_LISTEN="+clustertest.Reserve(t), "HOLDFAST_GRPC_LISTEN=127.0.0.1:0")
	require.Contains(t, out, "press Ctrl-C there, and call serve again.\nrefused")
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
func checkTour(t *testing.T, answers map[string][]string, psql bool) {
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
	require.Contains(t, cut[0], "timed out", "the first stream ended early")
	require.Equal(t, 1, strings.Count(cut[0], `"state":"TASK_STATE_COMPLETED"`), "only the second stream has the final event")

	trip := answers["Three versions, one task"]
	require.Len(t, trip, 3)
	require.Contains(t, trip[2], `"id": "trip-`)
	require.Contains(t, trip[2], `"state": "TASK_STATE_COMPLETED"`)
	require.Equal(t, 1, strings.Count(trip[2], `"role": "ROLE_USER"`), "only the newest message")
	require.Contains(t, trip[1], `"state": "TASK_STATE_COMPLETED"`)
	require.Regexp(t, `"messageId": "m-6",\s+"role": "ROLE_USER",\s+"taskId": "trip-`, trip[1])
	require.Contains(t, trip[0], `"state":"input-required"`)
	require.Contains(t, trip[0], `"text": "You answered: Oslo"`)
	require.Contains(t, trip[0], `"kind":"task","id":"trip-`, "0.3 shows the task under the id that 0.1 chose")
	require.Contains(t, trip[0], `"sessionId": `)

	kill := answers["Kill it"]
	require.Len(t, kill, 4)
	live := streamIDs(t, kill[1])
	require.Subset(t, live, []int{1, 2, 3}, "the stream began before the server was killed")
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

	own := answers["Your own agent"]
	require.Len(t, own, 1)
	require.Contains(t, own[0], "Shall I write it in upper or lower case?")
	require.Contains(t, own[0], "HOLD ")
	require.Contains(t, own[0], "FAST ")
	require.Contains(t, own[0], `"final":true`)

	inside := answers["Look inside"]
	require.Len(t, inside, 2)
	if psql {
		require.Contains(t, inside[0], `"outcome" : "lost"`)
		require.Contains(t, inside[0], "(24 rows)")
		require.Regexp(t, `status +\| completed +\| +3 `, inside[0], "the second run is attempt 3")
	}
	require.Regexp(t, `ok +agent python +http: .* answers`, inside[1])
	require.Contains(t, inside[1], " 0 fail")
}

// tourOf returns the blocks of the tour, which begins in the README. Further sections are topics, too.
func tourOf(t *testing.T, without ...string) []block {
	t.Helper()
	tour := slices.DeleteFunc(blocksOf(t, "../../README.md", "sh"), func(b block) bool { return b.section != "Tour" })
	require.NotEmpty(t, tour)
	rest := blocksOf(t, "../../docs/tour.md", "sh")
	require.NotEmpty(t, rest)
	for _, b := range rest {
		b.topic = b.section
		tour = append(tour, b)
	}
	return slices.DeleteFunc(tour, func(b block) bool { return slices.Contains(without, b.topic) })
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

	ctx, cancel := context.WithTimeout(context.Background(), 10*waittest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail")
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(), "BINARY=" + clustertest.Binary(t),
	}, env...)
	// All processes that it starts are in its group, except PostgreSQL.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
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
	err = cmd.Wait()
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

var (
	link     = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	within   = regexp.MustCompile(`\]\(#([^)\s]+)\)`)
	target   = regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)")
	test     = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	heading  = regexp.MustCompile(`^#+ (.*\S)\s*$`)
	declared = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
)

// TestDocumentsPointAtWhatIsThere follows the relative links of every document, also to headings, and looks for the make targets named.
func TestDocumentsPointAtWhatIsThere(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	var docs []string
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules" || (len(d.Name()) > 2 && d.Name()[0] == '.')):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			docs = append(docs, path)
		}
		return nil
	})
	require.NoError(t, err)
	require.Contains(t, docs, "../../README.md")
	tests := namesOfTests(t)
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, m := range test.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, tests, m[1], "%s names it", doc)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			path := filepath.Join(filepath.Dir(doc), m[1])
			_, err := os.Stat(path)
			require.NoError(t, err, "%s links to %s", doc, m[1])
			if m[2] != "" && filepath.Ext(path) == ".md" {
				require.Contains(t, anchorsOf(t, path), m[2][1:], "%s links to %s", doc, m[0])
			}
		}
		for _, m := range within.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, anchorsOf(t, doc), m[1], "%s links to its own part", doc)
		}
		for _, m := range target.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, string(makefile), "\n"+m[1]+":", "%s names make %s", doc, m[1])
		}
	}
}

// TestIndexHasEveryPage compares the index of the documents with their folder. Decisions have an index of their own.
func TestIndexHasEveryPage(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("../../docs/README.md")
	require.NoError(t, err)
	links := map[string]int{}
	for _, m := range link.FindAllStringSubmatch(string(index), -1) {
		links[m[1]]++
	}
	require.NoError(t, filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		page := strings.TrimPrefix(path, "../../docs/")
		switch ext := filepath.Ext(page); {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "decisions":
			page = "decisions/README.md"
		case page == "README.md" || !slices.Contains([]string{".md", ".yaml", ".json"}, ext):
			return nil
		}
		require.Equal(t, 1, links[page], "docs/README.md lists %s", page)
		if d.IsDir() {
			return filepath.SkipDir
		}
		return nil
	}))
}

// anchorsOf are those that GitHub makes of the headings of a document.
func anchorsOf(t *testing.T, file string) map[string]bool {
	t.Helper()
	doc, err := os.ReadFile(file)
	require.NoError(t, err)
	anchors := map[string]bool{}
	fenced := false
	for line := range strings.Lines(string(doc)) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		m := heading.FindStringSubmatch(line)
		if m == nil || fenced {
			continue
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		for n, again := 1, name; anchors[name]; n++ {
			name = fmt.Sprintf("%s-%d", again, n)
		}
		anchors[name] = true
	}
	return anchors
}

// namesOfTests are those of the whole repository.
func namesOfTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			names[m[1]] = true
		}
		return err
	}))
	return names
}
