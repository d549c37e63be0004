//go:build interop

package interop

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Holdfast in front of agents on official servers, as processes, and of another Holdfast. servers/ has the agents.

// servers are the folders below servers that have an agent.
func servers(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(folders(t, "servers"), func(folder string) bool { return !isProgram(folder) })
}

// upstream is an agent on an official server.
type upstream struct {
	t       *testing.T
	name    string
	addr    string
	grpc    string // its address, if the program serves it
	command []string
	cmd     *exec.Cmd
	read    chan struct{} // closed when all output has been read

	mu       sync.Mutex
	executed map[string][]string // the tasks that a text began, in order
}

func startUpstream(t *testing.T, name string) *upstream {
	t.Helper()
	u := &upstream{t: t, name: name, addr: nettest.Reserve(t), grpc: nettest.Reserve(t), command: install(t, "servers", name), executed: map[string][]string{}}
	t.Cleanup(u.kill)
	u.run()
	return u
}

func (u *upstream) run() {
	u.t.Helper()
	ports := slices.Clone(u.command[1:])
	for _, addr := range []string{u.addr, u.grpc} {
		_, port, err := net.SplitHostPort(addr)
		require.NoError(u.t, err)
		ports = append(ports, port)
	}
	u.cmd = exec.Command(u.command[0], ports...)
	u.cmd.Stderr = os.Stderr
	out, err := u.cmd.StdoutPipe()
	require.NoError(u.t, err)
	require.NoError(u.t, u.cmd.Start())
	read := make(chan struct{})
	u.read = read
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), "executed "); ok {
				task, text, _ := strings.Cut(rest, " ")
				u.mu.Lock()
				u.executed[text] = append(u.executed[text], task)
				u.mu.Unlock()
			}
		}
	}()
	waittest.Eventually(u.t, u.name+" serves", func() error {
		resp, err := http.Get("http://" + u.addr + "/.well-known/agent-card.json")
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
}

// kill kills the process, and reads all that it has said. Its store is its memory, which is lost.
func (u *upstream) kill() {
	_ = u.cmd.Process.Kill()
	<-u.read
	_ = u.cmd.Wait()
}

// fronting is an executor in front of the server at an address.
func fronting(addr string, stream bool) string {
	return fmt.Sprintf(`{kind: a2a, a2a: {card_url: "http://%s", url: "http://%s", stream: %t}}`, addr, addr, stream)
}

// withGRPC are the servers that are fronted over gRPC, too. The card of these has a port for it, and no other setting is needed.
var withGRPC = []string{"go-2", "py-0.3", "py-1"}

// server is an official server and the binding over which it is fronted.
type server struct {
	name string
	grpc bool
}

func (s server) String() string {
	if s.grpc {
		return s.name + " over gRPC"
	}
	return s.name
}

// bound returns the servers with each of their bindings.
func bound(t *testing.T) (all []server) {
	t.Helper()
	for _, name := range servers(t) {
		all = append(all, server{name, false})
		if slices.Contains(withGRPC, name) {
			all = append(all, server{name, true})
		}
	}
	return all
}

func TestFrontsOfOfficialServers(t *testing.T) {
	t.Parallel()
	for _, name := range servers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := startUpstream(t, name)
			config := clustertest.Settings +
				"  - {name: up, executor: " + fronting(u.addr, true) + "}\n" +
				"  - {name: poll, executor: " + fronting(u.addr, false) + "}\n"
			agents := []string{"up", "poll"}
			if slices.Contains(withGRPC, name) {
				for agent, stream := range map[string]bool{"grpc": true, "grpc-poll": false} {
					config += fmt.Sprintf("  - {name: %s, executor: {kind: a2a, a2a: {card_url: \"http://%s\", binding: grpc, stream: %t}}}\n", agent, u.addr, stream)
					agents = append(agents, agent)
				}
			}
			f := clustertest.Start(t, clustertest.Options{Name: "front", DB: clustertest.NewDB(t).URL, Config: config})
			for _, agent := range agents {
				send := func(says, task string) *a2atest.Result {
					t.Helper()
					return f.Send(a2atest.V03, a2atest.Say(says).To(task).At(agent))
				}
				res := send("echo:hello", "")
				require.Equal(t, "completed", res.State(), res.Said())
				require.Equal(t, "hello", a2atest.Text(res.Artifacts[0].Parts))
				res = send("ask:which?", "")
				require.Equal(t, "input-required", res.State(), res.Said())
				require.Equal(t, "which?", res.Said())
				res = send("that one", res.Task())
				require.Equal(t, "completed", res.State(), res.Said())
				require.Equal(t, "You answered: that one", a2atest.Text(res.Artifacts[0].Parts))
				res = send("chunks=20 size=64 delay=5ms", "")
				require.Equal(t, "completed", res.State(), res.Said())
				clustertest.Indexed(t, a2atest.Pieces(res.Artifacts[0].Parts, 64), 20)
				res = send("data", "")
				require.Equal(t, "completed", res.State(), res.Said())
				require.Contains(t, string(res.Artifacts[0].Parts[0].Data), `"hello"`)
			}
			verbs(t, u, "jsonrpc")
			if slices.Contains(withGRPC, name) {
				verbs(t, u, "grpc")
			}
		})
	}
}

// verbs talk to the server itself.
func verbs(t *testing.T, u *upstream, binding string) {
	t.Helper()
	verb := func(code int, args ...string) string {
		t.Helper()
		res := clustertest.Command(t, t.TempDir(), nil, append(args, "--url", "http://"+u.addr, "--binding", binding)...)
		require.Equal(t, code, res.Code, "%v: %s", args, res.Err)
		return res.Out
	}
	require.Contains(t, verb(0, "send", "echo:hello"), "hello")
	require.Contains(t, verb(0, "stream", "chunks=20 size=64 delay=5ms"), "00000019 ")
	asked := regexp.MustCompile(`(?m)^task +(\S+)`).FindStringSubmatch(verb(4, "stream", "ask:which?"))
	require.NotNil(t, asked)
	require.Contains(t, verb(0, "send", "that one", "--task", asked[1]), "You answered: that one")
}

// Holdfast accepts the notifications of each server, with the token that it shows.
func TestNotificationsOfOfficialServers(t *testing.T) {
	t.Parallel()
	for _, s := range bound(t) {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			const chunks = 50
			u := startUpstream(t, s.name)
			settings := "url: http://" + u.addr
			if s.grpc {
				settings = "binding: grpc"
			}
			var at atomic.Pointer[url.URL] // of the replica
			var accepted atomic.Int64
			door := httptest.NewServer(&httputil.ReverseProxy{
				Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at.Load()) },
				ModifyResponse: func(r *http.Response) error {
					if r.StatusCode != http.StatusNoContent {
						t.Errorf("a notification got %s", r.Status)
					}
					accepted.Add(1)
					return nil
				},
			})
			t.Cleanup(door.Close)
			config := fmt.Sprintf("run_api: {url: %q}\n", door.URL) + clustertest.Settings + fmt.Sprintf(
				"  - {name: up, executor: {kind: a2a, a2a: {card_url: http://%s, %s, stream: false, push: true}}}\n", u.addr, settings)
			f := clustertest.Start(t, clustertest.Options{Name: "front", DB: clustertest.NewDB(t).URL, Config: config})
			to, err := url.Parse(f.URL)
			require.NoError(t, err)
			at.Store(to)
			res := f.Send(a2atest.V03, a2atest.Say(fmt.Sprintf("chunks=%d size=32 delay=200ms", chunks)).At("up"))
			require.Equal(t, "completed", res.State(), res.Said())
			clustertest.Indexed(t, a2atest.Pieces(res.Artifacts[0].Parts, 32), chunks)
			waittest.Eventually(t, "notifications are accepted", func() error {
				return waittest.Unless(accepted.Load() > 0, "none")
			})
			require.NotContains(t, f.Log(), "accepts no push notifications")
			t.Logf("%d notifications", accepted.Load())
		})
	}
}

// everyClient selects all clients of the first ring for TestClientsThroughAFront.
var everyClient = flag.Bool("fronts", false, "run all clients of the first ring through a front, instead of the newest of each language")

// Clients get from a front what they get from the server behind it.
func TestClientsThroughAFront(t *testing.T) {
	t.Parallel()
	if *ring2 {
		t.Skip("a front is the same for the clients of the second ring")
	}
	clients := []string{"go-2", "js-1", "py-1"}
	if *everyClient {
		clients = slices.DeleteFunc(folders(t, "clients"), func(folder string) bool {
			return !isProgram(folder) || exists(t, filepath.Join("clients", folder, "ring2"))
		})
	}
	behind := clustertest.Start(t, clustertest.Options{Name: "behind", DB: storetest.New(t).URL, Config: settings(demo, nettest.Reserve(t), true)})
	c := startCluster(t, fronting(a2atest.Host(behind.URL), true), true)
	for _, name := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := install(t, "clients", name)
			for _, binding := range bindings {
				if _, ok := find(unsupported, name, binding, ""); ok {
					continue
				}
				t.Run(binding, func(t *testing.T) {
					t.Parallel()
					results, stderr := runClient(t, command, c.job(t, binding))
					judge(t, name, binding, results)
					if t.Failed() {
						t.Logf("stderr of %s over %s:\n%s", name, binding, stderr)
					}
				})
			}
		})
	}
}

// many is how many tasks a test with faults sends.
func many() int {
	if n, err := strconv.Atoi(os.Getenv("HOLDFAST_FRONT_TASKS")); err == nil {
		return n
	}
	return 20
}

// faults come again and again, after a pause that is random.
var faults = []struct {
	name  string
	every time.Duration
	do    func(*upstream, *clustertest.Proxy, *clustertest.Replica)
	loses bool // tasks of the server
	late  int  // how many requests of a task may be executed after a repetition of them
}{
	// A busy server may read a request whose connection was cut later than its repetition.
	{name: "cuts", every: 500 * time.Millisecond, late: 1, do: func(_ *upstream, link *clustertest.Proxy, _ *clustertest.Replica) { link.Cut() }},
	{name: "kills of the front", every: 4 * time.Second, do: func(_ *upstream, _ *clustertest.Proxy, f *clustertest.Replica) {
		f.Kill()
		f.Run()
	}},
	{name: "kills of the server", every: 3 * time.Second, loses: true, do: func(u *upstream, _ *clustertest.Proxy, _ *clustertest.Replica) {
		u.kill()
		u.run()
	}},
}

// Clients' streams are whole, and no task runs a second time after the front has stored its id.
func TestFaultsBetweenFrontsAndOfficialServers(t *testing.T) {
	t.Parallel()
	for _, s := range bound(t) {
		for _, fault := range faults {
			if s.grpc && fault.name != "cuts" {
				continue // a process that dies is the same over each binding
			}
			t.Run(s.String()+"/"+fault.name, func(t *testing.T) {
				t.Parallel()
				const chunks, together = 40, 20
				u := startUpstream(t, s.name)
				link := clustertest.NewProxy(t, u.addr)
				executor := fronting(link.Addr, true)
				if s.grpc {
					link = clustertest.NewProxy(t, u.grpc)
					executor = fmt.Sprintf(`{kind: a2a, a2a: {card_url: "http://%s", url: "http://%s", binding: grpc}}`, u.addr, link.Addr)
				}
				db := clustertest.NewDB(t)
				// A front that is killed every 4 s takes its tasks up again in between.
				config := clustertest.Replace(clustertest.Settings, "lease_ttl: 6s", "lease_ttl: 3s") + "  - {name: up, executor: " + executor + ", limits: {backoff: 100ms, max_attempts: 1000}}\n"
				f := clustertest.Start(t, clustertest.Options{Name: "front", DB: db.URL, Config: config})
				n, times, resumes := many(), 0, 0
				clients := f.In(t) // a restart has the same address
				ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience+time.Duration(n)*5*time.Second)
				defer cancel()
				texts := make([]string, n)
				got, errs := make([]*a2atest.Followed, n), make([]error, n)
				var running sync.WaitGroup
				places, ended := make(chan struct{}, together), make(chan struct{})
				for i := range n {
					texts[i] = fmt.Sprintf("chunks=%d size=32 delay=50ms n=%d", chunks, i)
					running.Go(func() {
						places <- struct{}{}
						got[i], errs[i] = clients.Follow(ctx, a2atest.Say(texts[i]).At("up"))
						<-places
					})
				}
				go func() { running.Wait(); close(ended) }()
				waittest.Eventually(t, "an id is known", func() error {
					n := clustertest.One[int](db, "SELECT count(*) FROM holdfast.task_states")
					return waittest.Unless(n > 0, "not yet")
				})
				time.Sleep(rand.N(time.Second)) // any moment of the first task
				fault.do(u, link, f)
				times++
				for going := true; going; {
					select {
					case <-ended:
						going = false
					case <-time.After(fault.every/2 + rand.N(fault.every)):
						fault.do(u, link, f)
						times++
					}
				}
				f.WaitReady()
				u.kill() // all that it has said is read
				lost, unknown := 0, 0
				for i, c := range got {
					require.NoError(t, errs[i])
					resumes += c.Resumes
					if fault.loses && c.State == "failed" {
						require.Contains(t, c.Said, "lost its task")
						lost++
					} else {
						require.Equal(t, "completed", c.State, c.Said)
						clustertest.Indexed(t, c.Pieces(32), chunks)
					}
					// The id was stored once, and nothing was sent afterwards.
					executed := u.executed[texts[i]]
					link := clustertest.Column[string](db, "SELECT value->>'task' FROM holdfast.task_states WHERE task = $1 AND version = 1", db.ID(c.Task))
					require.Len(t, link, 1)
					known := slices.Index(executed, link[0])
					require.NotEqual(t, -1, known)
					require.LessOrEqual(t, len(executed)-1-known, fault.late, "executions after the one that the front knows")
					unknown += len(executed) - 1
				}
				db.Sound()
				t.Logf("%d tasks, %d faults, %d resumes of clients; %d tasks lost by the server; %d executed before their id was known, and again",
					n, times, resumes, lost, unknown)
			})
		}
	}
}
