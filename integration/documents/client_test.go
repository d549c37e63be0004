package documents

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// TestClientPage runs the commands of docs/write-a-client.md against the demo agent. TestClientPagePrograms of interop runs its programs.
func TestClientPage(t *testing.T) {
	t.Parallel()
	script := "holdfast() { \"$BINARY\" \"$@\"; }\n\"$BINARY\" > first.log 2>&1 &\n" +
		"until \"$BINARY\" ready > /dev/null 2>&1; do kill -0 $!; sleep 0.1; done\n"
	var topics []string
	for _, b := range blocksOf(t, "../../docs/write-a-client.md", "sh") {
		topics = append(topics, b.section)
		script += "echo '== '\n" + b.text
	}
	require.Equal(t, []string{"Repeat safely", "Resume"}, topics)
	public := clustertest.Reserve(t)
	out := paste(t, strings.ReplaceAll(script, "127.0.0.1:8080", public)+"kill $!; wait\n", "HOLDFAST_URL=http://"+public,
		"HOLDFAST_LISTEN="+public, "HOLDFAST_ADMIN_LISTEN="+clustertest.Reserve(t), "HOLDFAST_GRPC_LISTEN=127.0.0.1:0")
	said := strings.Split(out, "== \n")[1:]
	require.Len(t, said, 2, out)

	ids := regexp.MustCompile(`"id": ?"([^"]+)"`).FindAllStringSubmatch(said[0], -1)
	require.Len(t, ids, 2, said[0])
	require.Equal(t, ids[0], ids[1], "the second request finds the task of the first one")
	require.Equal(t, 2, strings.Count(said[0], "TASK_STATE_COMPLETED"), said[0])

	resumed := streamIDs(t, said[1])
	require.Equal(t, 4, resumed[0], said[1])
	require.True(t, slices.IsSorted(resumed))
	require.Contains(t, said[1], "TASK_STATE_COMPLETED")
}
