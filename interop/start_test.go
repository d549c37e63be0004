//go:build interop

package interop

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// newest has the newest client of each language, and how it runs a program that a page prints.
var newest = map[string]struct {
	language, extension string
	run                 func(t *testing.T, file string) *exec.Cmd // with the SDK
}{
	"py-1": {"python", ".py", func(t *testing.T, file string) *exec.Cmd {
		t.Helper()
		return exec.CommandContext(t.Context(), install(t, "clients", "py-1")[0], file)
	}},
	"js-1": {"js", ".mjs", func(t *testing.T, file string) *exec.Cmd {
		t.Helper()
		modules := filepath.Join(filepath.Dir(install(t, "clients", "js-1")[1]), "node_modules")
		require.NoError(t, os.Symlink(modules, filepath.Join(filepath.Dir(file), "node_modules")))
		return exec.CommandContext(t.Context(), "node", file)
	}},
	"go-2": {"go", ".go", func(t *testing.T, file string) *exec.Cmd {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", "run", file)
		cmd.Dir = "clients/go-2"
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
		return cmd
	}},
}

// printed returns the program of a page with this language and file name.
func printed(t *testing.T, page, info string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```" + regexp.QuoteMeta(info) + "\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, found, "%s has no block %s", page, info)
	return string(found[1])
}

// output runs a program of a page, with changes, against a server, and returns what it prints.
func output(t *testing.T, page, client, file, url string, changes ...string) string {
	t.Helper()
	c := newest[client]
	changed := strings.NewReplacer(append(changes, "http://127.0.0.1:8080", url)...)
	program := changed.Replace(printed(t, page, c.language+" "+file+c.extension))
	file = filepath.Join(t.TempDir(), file+c.extension)
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	out, err := c.run(t, file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// TestFirstClients runs the clients of docs/clients.md with the SDKs of the first ring, against an agent that answers as that of the
// page does.
func TestFirstClients(t *testing.T) {
	t.Parallel()
	if *ring2 {
		t.Skip("these clients are of the first ring")
	}
	const page = "../docs/clients.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(text), "`.venv/bin/python client.py` prints")
	require.True(t, ok)
	want := regexp.MustCompile("(?s)```text\n(.*?)```").FindStringSubmatch(after)
	require.NotNil(t, want)

	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"text": "Hello, world!"}`))
	}))
	t.Cleanup(agent.Close)
	r := clustertest.Start(t, clustertest.Options{Name: "A", DB: storetest.New(t).URL, Config: `
listen: 127.0.0.1:0
grpc_listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
agents:
  - name: hello
    executor: {kind: http, http: {url: "` + agent.URL + `"}}
`})

	for name, file := range map[string]string{"py-1": "client", "js-1": "client", "go-2": "main"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want[1], output(t, page, name, file, r.URL))
		})
	}
}

// TestClientPagePrograms runs the programs of docs/write-a-client.md through a proxy that loses the answer to the first message, and cuts
// the next stream. Each program prints the whole text, and has sent one message.
func TestClientPagePrograms(t *testing.T) {
	t.Parallel()
	if *ring2 {
		t.Skip("these clients are of the first ring")
	}
	for name := range newest {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var server atomic.Pointer[string]
			cuts := &cutter{server: &server}
			proxy := httptest.NewServer(cuts)
			t.Cleanup(proxy.Close)
			db := clustertest.OpenDB(t, storetest.New(t).URL)
			r := clustertest.Start(t, clustertest.Options{Name: "A", DB: db.URL, Config: settings(demo, "127.0.0.1:0", false) +
				"public_url: " + proxy.URL + "\n"})
			server.Store(&r.URL)

			said := output(t, "../docs/write-a-client.md", name, "durable", proxy.URL)
			require.Equal(t, clustertest.One[string](db, "SELECT text FROM holdfast.v_artifacts")+"\n", said)
			require.Len(t, strings.Fields(said), 2*20, "a number and a time in each chunk")
			require.Equal(t, int64(3), cuts.posts.Load(), "a lost answer, a cut stream, and the rest")
			require.Equal(t, 1, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_tasks"))

			cuts.posts.Store(0)
			require.Equal(t, "\n", output(t, "../docs/write-a-client.md", name, "durable", proxy.URL, "chunks=20 size=8 delay=200ms", "ask:Where to?"))
		})
	}
}

// cutter forwards requests. The first POST is stored, and its answer lost; the answer of the second one ends without its end.
type cutter struct {
	server *atomic.Pointer[string]
	posts  atomic.Int64
}

// ServeHTTP implements [http.Handler].
func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, *c.server.Load()+r.URL.String(), r.Body)
	if err != nil {
		panic(err)
	}
	out.Header = r.Header.Clone()
	res, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = res.Body.Close() }()
	var nth int64
	if r.Method == http.MethodPost {
		nth = c.posts.Add(1)
	}
	if nth == 1 {
		panic(http.ErrAbortHandler)
	}
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
	sent := 0
	for buf := make([]byte, 512); ; {
		n, err := res.Body.Read(buf)
		if _, err := w.Write(buf[:n]); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		if sent += n; nth == 2 && (sent > 1500 || err != nil) {
			panic(http.ErrAbortHandler)
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}
