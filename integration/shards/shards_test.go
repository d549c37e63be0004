package shards

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// installation is a replica with a database of its own, a name and an agent.
type installation struct {
	*clustertest.Replica
	db  *clustertest.DB
	key string
}

func install(t *testing.T, name, agent string) installation {
	t.Helper()
	db := clustertest.NewDB(t)
	config := clustertest.Replace(clustertest.WithKeys, "- name: demo", "- name: "+agent)
	r := clustertest.Start(t, clustertest.Options{
		Name: name, DB: db.URL,
		Config: config + "public_url: http://" + name + ".agents.example.com\n",
	})
	return installation{r, db, db.Keys(store.APIKey{}, "alice")[0]}
}

// addRoutes runs deploy/shards/routes.py.
func addRoutes(t *testing.T, dir string, key string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("python3", append([]string{"../../deploy/shards/routes.py", "--out", dir}, args...)...)
	cmd.Env = append(os.Environ(), "CATALOG_KEY="+key)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// front is HAProxy with deploy/haproxy-shards.cfg.
type front struct {
	http, grpc string // addresses
	client     *http.Client
}

func balance(t *testing.T, routes string, a, b installation) *front {
	t.Helper()
	config, err := os.ReadFile("../../deploy/haproxy-shards.cfg")
	require.NoError(t, err)
	f := &front{http: nettest.Reserve(t), grpc: nettest.Reserve(t)}
	text := string(config)
	// On a busy machine, which delays checks, the only server of an installation would be away now and then.
	replaced := [][2]string{{" fall 2 ", " fall 20 "}, {"/usr/local/etc/haproxy/shards", routes}, {"bind :8080\n", "bind " + f.http + "\n"}, {"bind :8081 ", "bind " + f.grpc + " "}}
	for _, r := range replaced {
		require.Contains(t, text, r[0])
		text = strings.ReplaceAll(text, r[0], r[1])
	}
	for prefix, i := range map[string]installation{"10.0.1.": a, "10.0.2.": b} {
		_, admin, err := net.SplitHostPort(a2atest.Host(i.Admin))
		require.NoError(t, err)
		var lines []string
		for _, line := range strings.Split(text, "\n") {
			// One of two replicas is enough here.
			if strings.Contains(line, prefix+"12:") {
				continue
			}
			line = strings.ReplaceAll(line, prefix+"11:8080", a2atest.Host(i.URL))
			line = strings.ReplaceAll(line, prefix+"11:8081", i.GRPC)
			if strings.Contains(line, a2atest.Host(i.URL)) || strings.Contains(line, i.GRPC) {
				require.Contains(t, line, "check port 9090")
				line = strings.ReplaceAll(line, "check port 9090", "check port "+admin)
			}
			lines = append(lines, line)
		}
		text = strings.Join(lines, "\n")
	}
	require.NotContains(t, text, " 10.0.")
	clustertest.HAProxy(t, text)
	transport := &http.Transport{DialContext: f.dial}
	f.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	waittest.Eventually(t, "HAProxy has servers", func() error {
		for _, host := range []string{"a", "b"} {
			resp, err := f.try(t, http.MethodGet, "http://"+host+".agents.example.com/.well-known/jwks.json", "", nil)
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", host, resp.Status)
			}
		}
		return nil
	})
	return f
}

// dial leads every name to HAProxy, as a wildcard in DNS does.
func (f *front) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, f.http)
}

func (f *front) try(t *testing.T, method, address, key string, body []byte, header ...string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(waittest.Context(t), method, address, bytes.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	return f.client.Do(req)
}

func (f *front) do(t *testing.T, method, address, key string, body []byte) (int, string) {
	t.Helper()
	resp, err := f.try(t, method, address, key, body)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

func (f *front) send(t *testing.T, address, key, text string) string {
	t.Helper()
	code, answer := f.do(t, http.MethodPost, address, key, a2atest.V03.Request(a2atest.Send, a2atest.Say(text)))
	require.Equal(t, http.StatusOK, code, answer)
	return answer
}

// stream opens a stream of the agent.
func (f *front) stream(t *testing.T, address, key string, op a2atest.Op, of *a2atest.Args, header ...string) *a2atest.Reply {
	t.Helper()
	resp, err := f.try(t, http.MethodPost, address, key, a2atest.V03.Request(op, of), header...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(t, http.StatusOK, resp.StatusCode)
	return a2atest.NewStream(t, resp.Body)
}

func (i installation) tasks() int64 {
	return clustertest.One[int64](i.db, "SELECT count(*) FROM holdfast.v_tasks")
}

// Two installations with a database each look like one server: one catalog, and every agent below one name.
func TestInstallationsBehindOneBalancer(t *testing.T) {
	t.Parallel()
	a, b := install(t, "a", "weather"), install(t, "b", "words")
	routes := t.TempDir()
	out, err := addRoutes(t, routes, "", "shard_a="+a.URL, "shard_b="+b.URL, "--host", "ACME.agents.example.com=shard_b")
	require.NoError(t, err, out)
	require.Contains(t, out, "2 agents, 3 names")
	f := balance(t, routes, a, b)
	const all = "http://agents.example.com"

	// The catalog has the agents of both, and leads to their cards.
	code, answer := f.do(t, http.MethodGet, all+"/agents", "", nil)
	require.Equal(t, http.StatusOK, code, answer)
	var catalog struct {
		Agents []struct {
			Name    string
			CardURL string `json:"cardUrl"`
			Default bool
		}
		TotalSize int
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &catalog))
	require.Equal(t, 2, catalog.TotalSize)
	require.Equal(t, "weather", catalog.Agents[0].Name)
	require.Equal(t, "words", catalog.Agents[1].Name)
	require.False(t, catalog.Agents[0].Default || catalog.Agents[1].Default)
	code, answer = f.do(t, http.MethodGet, all+"/agents?skill=x", "", nil)
	require.Equal(t, http.StatusBadRequest, code, answer)
	code, _ = f.do(t, http.MethodGet, all+"/agents/nobody/.well-known/agent-card.json", "", nil)
	require.Equal(t, http.StatusNotFound, code)

	for n, i := range []installation{a, b} {
		agent := catalog.Agents[n]
		code, answer = f.do(t, http.MethodGet, agent.CardURL, "", nil)
		require.Equal(t, http.StatusOK, code, answer)
		var card struct{ URL string }
		require.NoError(t, json.Unmarshal([]byte(answer), &card))
		address, err := url.Parse(card.URL)
		require.NoError(t, err)
		require.Equal(t, i.Name+".agents.example.com", address.Host, "cards have the name of the installation")
		other := []installation{b, a}[n]
		before, beforeOther := i.tasks(), other.tasks()
		require.Contains(t, f.send(t, card.URL, i.key, "echo:hello"), `"completed"`)
		require.Contains(t, f.send(t, all+"/agents/"+agent.Name, i.key, "echo:hello"), `"completed"`)
		require.Equal(t, before+2, i.tasks())
		require.Equal(t, beforeOther, other.tasks(), "each task is in one database")

		// A stream begins below one name and is resumed below the other.
		first := f.stream(t, all+"/agents/"+agent.Name, i.key, a2atest.Stream, a2atest.Say("chunks=5 size=8"))
		seen := first.Take(3)
		rest := f.stream(t, card.URL, i.key, a2atest.Subscribe, a2atest.Say().To(seen[0].Task()), "Last-Event-ID", first.LastID).Rest()
		whole := f.stream(t, card.URL, i.key, a2atest.Subscribe, a2atest.Say().To(seen[0].Task()), "Last-Event-ID", "1").Rest()
		require.Equal(t, a2atest.Seqs(whole), append(a2atest.Seqs(seen)[1:], a2atest.Seqs(rest)...))

		require.Equal(t, "completed", sendOverGRPC(t, f.grpc, i.Name+".agents.example.com", i.key))
	}
	_, keysOfA := f.do(t, http.MethodGet, "http://a.agents.example.com/.well-known/jwks.json", "", nil)
	_, keysOfB := f.do(t, http.MethodGet, "http://b.agents.example.com/.well-known/jwks.json", "", nil)
	require.NotEqual(t, keysOfA, keysOfB, "each name has the keys that sign its cards")
	require.Equal(t, codes.Unimplemented.String(), sendOverGRPC(t, f.grpc, "elsewhere.example.com", a.key))

	// A tenant by its name, in any case.
	before := b.tasks()
	require.Contains(t, f.send(t, "http://Acme.Agents.Example.Com/agents/words", b.key, "echo:hello"), `"completed"`)
	require.Equal(t, before+1, b.tasks())

	// One installation is away; the other does not notice.
	b.Kill()
	waittest.Eventually(t, "the agent of the killed installation is away", func() error {
		code, answer := f.do(t, http.MethodPost, all+"/agents/words", b.key, a2atest.V03.Request(a2atest.Send, a2atest.Say("echo:hello")))
		return waittest.Unless(code == http.StatusServiceUnavailable, "%d %s", code, answer)
	})
	require.Contains(t, f.send(t, all+"/agents/weather", a.key, "echo:hello"), `"completed"`)
	code, _ = f.do(t, http.MethodGet, all+"/agents", "", nil)
	require.Equal(t, http.StatusOK, code)
}

// Nothing is written for installations that cannot share one name.
func TestRoutesThatCollide(t *testing.T) {
	t.Parallel()
	a, same, host := install(t, "a", "weather"), install(t, "c", "weather"), install(t, "a", "words")
	moving := t.TempDir()
	out, err := addRoutes(t, moving, "", "shard_a="+a.URL, "shard_c="+same.URL, "--agent", "weather=shard_c")
	require.NoError(t, err, out)
	agents, err := os.ReadFile(filepath.Join(moving, "agents.map"))
	require.NoError(t, err)
	require.Equal(t, "weather shard_c\n", string(agents))
	hosts, err := os.ReadFile(filepath.Join(moving, "hosts.map"))
	require.NoError(t, err)
	require.Equal(t, "a.agents.example.com shard_a\nc.agents.example.com shard_c\n", string(hosts), "tasks of the old one are found by its name")

	for says, args := range map[string][]string{
		"both have the agent weather":         {"shard_a=" + a.URL, "shard_c=" + same.URL},
		"have the same public_url":            {"shard_a=" + a.URL, "shard_b=" + host.URL},
		"no such backend":                     {"shard_a=" + a.URL, "--host", "x.example.com=shard_z"},
		"that installation has no such agent": {"shard_a=" + a.URL, "shard_c=" + same.URL, "--agent", "weather=shard_z"},
		"the name leads to another one":       {"shard_c=" + same.URL, "shard_b=" + host.URL, "--host", "a.agents.example.com=shard_c"},
		"Connection refused":                  {"shard_a=http://" + nettest.Reserve(t)},
		"shard_a: write NAME=VALUE":           {"shard_a"},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out, err := addRoutes(t, dir, "", args...)
			require.Error(t, err)
			require.Contains(t, out, says)
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, files)
		})
	}
}

func sendOverGRPC(t *testing.T, address, authority, key string) string {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(authority))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(waittest.Context(t), "x-api-key", key)
	answer, err := pb10.NewA2AServiceClient(conn).SendMessage(ctx, &pb10.SendMessageRequest{Message: &pb10.Message{
		MessageId: store.NewID().String(), Role: pb10.Role_ROLE_USER,
		Parts: []*pb10.Part{{Content: &pb10.Part_Text{Text: "echo:hi"}}},
	}})
	if err != nil {
		return status.Code(err).String()
	}
	return strings.ToLower(strings.TrimPrefix(answer.GetTask().GetStatus().GetState().String(), "TASK_STATE_"))
}
