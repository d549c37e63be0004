package documents

import (
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

const startPage = "../../docs/start.md"

// TestStart does what docs/start.md says in its parts about a server, an agent over HTTP, and curl. The first commands of a part hold
// their terminal; the text after the next ones is what they print. TestStartPageClients of interop runs the other clients,
// TestTenLinesOfPython the worker.
func TestStart(t *testing.T) {
	t.Parallel()
	// A reader does the topics of a name in this order.
	for name, topics := range map[string][]string{
		"server": {"On your laptop"},
		"agent":  {"Over HTTP", "curl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, port, err := net.SplitHostPort(clustertest.Reserve(t))
			require.NoError(t, err)
			script := "make() { exec \"$BINARY\"; }\nmkdir bin; ln -s \"$BINARY\" bin/holdfast\n"
			var want []string
			serves := false
			for _, b := range allBlocks(t, startPage) {
				if b.topic != topics[0] && b.topic != topics[len(topics)-1] {
					continue
				}
				language, file, _ := strings.Cut(b.language, " ")
				switch {
				case file != "":
					script += "cat > " + file + " <<'END OF FILE'\n" + b.text + "END OF FILE\n"
				case language == "sh" && !serves:
					serves = true
					command := strings.Replace(b.text, "bin/holdfast dev", "exec bin/holdfast dev", 1)
					script += "{ " + strings.TrimSpace(command) + "; } > first.log 2>&1 &\n" +
						"until bin/holdfast ready > /dev/null 2>&1; do kill -0 $!; sleep 0.2; done\n"
				case language == "sh":
					script += "echo '== '\n" + b.text
				case language == "text":
					want = append(want, b.text)
				}
			}
			require.True(t, serves, "the page has no server")
			public := clustertest.Reserve(t)
			script = strings.NewReplacer("127.0.0.1:8080", public, "9000", port).Replace(script) + "kill $!; wait\n"
			out := paste(t, script, "HOLDFAST_URL=http://"+public, "HOLDFAST_LISTEN="+public,
				"HOLDFAST_ADMIN_LISTEN="+clustertest.Reserve(t), "HOLDFAST_GRPC_LISTEN=127.0.0.1:0")
			said := strings.Split(out, "== \n")[1:]
			require.Len(t, said, len(topics), out)
			require.Len(t, want, len(topics), "each block of commands says what it prints")
			require.Equal(t, want[0], regexp.MustCompile(`(?m)^(task|context) .*\n`).ReplaceAllString(said[0], ""))
			if len(topics) == 1 {
				return
			}
			require.Equal(t, []int{1, 2, 3, 4}, streamIDs(t, said[1]))
			events := regexp.MustCompile(`"(taskId|contextId)":"[^"]*"`).ReplaceAllString(said[1], `"$1":"…"`)
			lines := strings.Split(strings.TrimSpace(events), "\n")
			require.Contains(t, lines[len(lines)-1], `"state":"TASK_STATE_COMPLETED"`)
			require.Contains(t, events, "\n"+want[1]+"\nid: 4-", "the last but one")
		})
	}
}

// Commands of docs/start.md that other tests run are the same as where these tests find them.
func TestStartHasTestedCommands(t *testing.T) {
	t.Parallel()
	of := func(page, section, topic string) (commands []string) {
		for _, b := range allBlocks(t, page) {
			if b.section == section && b.topic == topic && b.language == "sh" {
				commands = append(commands, b.text)
			}
		}
		require.NotEmpty(t, commands, "%s, %s, %s", page, section, topic)
		return commands
	}
	compose := of("../../docs/deployment.md", "Compose", "")[0]
	for _, command := range of(startPage, "1. A server", "With Docker") {
		require.True(t, strings.HasPrefix(compose, command), "docs/deployment.md begins with %s", command)
	}
	require.Equal(t, of("../../README.md", "Ten lines of Python", "")[0], of(startPage, "2. An agent", "As a worker")[0])

	// The clients of the interop tests have these releases.
	for topic, c := range map[string]struct{ manifest, pattern, pin string }{
		"Python":     {"py-1/requirements.txt", `a2a-sdk==(\S+)`, "a2a-sdk[grpc]==%s\n"},
		"JavaScript": {"js-1/package.json", `@a2a-js/sdk@(\S+)`, `"@a2a-js/sdk": "%s"`},
		"Go":         {"go-2/go.mod", `a2a-go/v2@(\S+)`, "github.com/a2aproject/a2a-go/v2 %s\n"},
	} {
		installs := strings.Join(of(startPage, "3. A client", topic), "")
		release := regexp.MustCompile(c.pattern).FindStringSubmatch(installs)
		require.NotNil(t, release, installs)
		require.Contains(t, string(repository(t, "interop/clients/"+c.manifest)), fmt.Sprintf(c.pin, release[1]))
	}
}
