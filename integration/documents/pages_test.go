package documents

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
)

// page is a document whose commands run as written, and how a reader comes to run them.
type page struct {
	file   string
	topics []string // headings; empty: all
	ports  []string // of agents
	before string   // commands
	python bool     // before has the official SDK in .holdfast/venv
	// serves: each line of the first block of commands has a terminal of its own. Other pages need a server.
	serves bool
	// says is what the blocks of commands print, in part, where the page does not say it in a block of text.
	says [][]string
}

// reader is the shell of a reader. The verbs remember the id of the task that they have made.
const reader = `
make() { exec "$BINARY"; }
mkdir bin; ln -s "$BINARY" bin/holdfast
holdfast() {
  case "$1" in
    serve|dev) exec "$BINARY" "$@";;
    *) "$BINARY" "$@" > said.txt || { CODE=$?; [ $CODE -ge 3 ] || exit $CODE; }; cat said.txt;;
  esac
  MADE=$(sed -n "s/^task *//p" said.txt)
  TASK=${MADE:-$TASK}
}
ready() { until "$BINARY" ready > /dev/null 2>&1; do kill -0 $! || { cat first.log; exit 1; }; sleep 0.2; done; }
at() { :; }
TASK=
`

// TestPages does what the pages for newcomers say. Blocks with a file name are files, and a block of text is what the commands
// before it print. Pages about servers that the reader has get one from the examples. interop runs the programs that need
// packages of others, TestGuidesHaveThePrograms compares those in Go, and the store tests the SQL (TestTroubleshootingQuestions).
func TestPages(t *testing.T) {
	t.Parallel()
	waits := func(url string) string {
		return "until curl -s -o /dev/null " + url + "; do kill -0 $!; sleep 0.2; done\n"
	}
	startCounter := ".holdfast/venv/bin/python examples/python/a2a/agent.py 9999 > agent.log 2>&1 &\n" +
		waits("-f http://127.0.0.1:9999/.well-known/agent-card.json")
	for name, p := range map[string]page{
		"start":           {file: "start.md", serves: true},
		"agents, http":    {file: "agents/http.md", serves: true, ports: []string{"9000"}},
		"agents, command": {file: "agents/command.md", serves: true},
		"agents, questions": {file: "agents/questions.md", serves: true, says: [][]string{
			{"input-required", "Which seat, and how many bags?", "requestedSchema"}, {"completed", "Seat: aisle, bags: 2"},
		}},
		"agents, from an SDK server": {
			file: "agents/from-sdk-server.md", serves: true, ports: []string{"9999"}, says: [][]string{{"18 19 20"}},
			python: true, before: startCounter,
		},
		"agents, a2a": {
			file: "agents/a2a.md", serves: true, ports: []string{"9999"}, says: [][]string{{"18 19 20"}},
			python: true, before: startCounter,
		},
		"agents, openai": {
			file: "agents/openai.md", serves: true, ports: []string{"9998"}, says: [][]string{{"You have said: What do you sell?"}},
			before: "python3 examples/python/model.py 9998 &\n" + waits("http://127.0.0.1:9998/"),
		},
		"a client": {file: "write-a-client.md", topics: []string{"Repeat safely", "Resume"}, says: [][]string{
			{"TASK_STATE_COMPLETED"}, {"id: 4-", "TASK_STATE_COMPLETED"},
		}},
		// A task that waits for its client, and one that failed for a cause that its client does not read.
		"troubleshooting": {file: "troubleshoot.md", before: cutAfter("1") + `
holdfast send --no-input "ask:Where to?"; PARKED=$TASK
holdfast send "crash"; FAILED=$TASK
at() { if [ "$1" = First ]; then TASK=$FAILED; else TASK=$PARKED; fi; }
`, says: [][]string{
			{"checks ok (-v shows them)", `"name":"database","status":"ok"`},
			{"The agent crashed.", "panic: demo: crash, as the script asked"},
			{"holdfast_limited_total"},
			{"TASK_STATE_INPUT_REQUIRED"},
			{"TASK"},
			{"no mistakes"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			commands, prints := p.script(t)
			public, admin := nettest.Reserve(t), nettest.Reserve(t)
			script := strings.NewReplacer("127.0.0.1:8080", public, "127.0.0.1:9090", admin).Replace(commands)
			out := paste(t, atOwnPorts(t, p.ports...).Replace(script), "HOLDFAST_URL=http://"+public,
				"HOLDFAST_LISTEN="+public, "HOLDFAST_ADMIN_LISTEN="+admin, "HOLDFAST_GRPC_LISTEN=127.0.0.1:0")
			answers := strings.Split(out, "== \n")[1:]
			require.Len(t, answers, len(prints), out)
			for i, answer := range answers {
				answer = regexp.MustCompile(`(?m)^(task|context) .*\n`).ReplaceAllString(answer, "")
				answer = regexp.MustCompile(`"(taskId|contextId)":"[^"]*"`).ReplaceAllString(answer, `"$1":"…"`)
				switch {
				case p.says != nil:
					for _, want := range p.says[i] {
						require.Contains(t, answer, want, out)
					}
				case strings.Contains(prints[i], "…"):
					require.Contains(t, answer, prints[i])
				default:
					require.Equal(t, prints[i], answer)
				}
			}
			if name == "a client" {
				ids := regexp.MustCompile(`"id": ?"([^"]+)"`).FindAllStringSubmatch(answers[0], -1)
				require.Len(t, ids, 2, answers[0])
				require.Equal(t, ids[0], ids[1], "the second request finds the task of the first one")
				require.Equal(t, 4, streamIDs(t, answers[1])[0], "the stream goes on after the event that the client has seen")
			}
		})
	}
}

// script is what a reader types, and what the page says that it prints, for each block of commands after the server is there.
func (p *page) script(t *testing.T) (script string, prints []string) {
	t.Helper()
	// The page about models names one of others.
	model := regexp.MustCompile(`base_url: .*`)
	script = reader
	serving := !p.serves
	if serving {
		script += "\"$BINARY\" > first.log 2>&1 &\nready\n"
	}
	if p.python {
		script += venv(t) + "mkdir -p .holdfast; python3 -m venv .holdfast/venv\n"
	}
	script += p.before
	for _, b := range allBlocks(t, "../../docs/"+p.file) {
		if len(p.topics) > 0 && !slices.Contains(p.topics, b.topic) && !slices.Contains(p.topics, b.section) {
			continue
		}
		language, file, _ := strings.Cut(b.language, " ")
		switch {
		case file != "" && (language == "yaml" || language == "python"):
			script += "cat > " + file + " <<'END OF FILE'\n" + model.ReplaceAllString(b.text, "base_url: http://127.0.0.1:9998/v1") + "END OF FILE\n"
			if language == "yaml" {
				script += "echo '" + patient + "' >> " + file + "\n"
			}
		case b.language == "sh" && !serving:
			serving = true
			for line := range strings.Lines(b.text) {
				line = strings.Replace(line, "bin/holdfast dev", "exec env -u HOLDFAST_CONFIG bin/holdfast dev", 1) // kill reaches it
				script += "{ " + strings.TrimSpace(line) + "; } >> first.log 2>&1 &\n"
			}
			script += "ready\n"
		case b.language == "sh":
			script += "at '" + b.section + "'; echo '== '\n" + b.text
			prints = append(prints, "")
		case b.language == "text" && len(prints) > 0:
			prints[len(prints)-1] = b.text
		}
	}
	require.NotEmpty(t, prints, "the page has no commands")
	return script + "kill $(jobs -p); wait\n", prints
}
