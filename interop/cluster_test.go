//go:build interop

package interop

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/issuertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

func TestMain(m *testing.M) {
	issuertest.Main()
	os.Exit(m.Run())
}

// settings are the settings of a replica with an executor. Its card announces gRPC only with an address. Webhooks go to this machine.
func settings(executor, grpc string, announced bool) string {
	address := ""
	if announced {
		address = grpc
	}
	return fmt.Sprintf(`
listen: 127.0.0.1:0
grpc_listen: %s
public_grpc_address: %q
admin_listen: 127.0.0.1:0
push: {allow_private: true}
agents:
  - name: demo
    executor: %s
    card:
      extended: true
      default_input_modes: [text/plain, application/json, "*/*"]
      default_output_modes: [text/plain, application/json, "*/*"]
`, grpc, address, executor)
}

// demo is the executor of the agent that all clients know.
const demo = "{kind: demo}"

// locked is a server of its own, whose agent requires a credential.
type locked struct {
	URL   string `json:"locked"`
	GRPC  string `json:"grpc_locked"`
	Key   string `json:"api_key"` // for the scheme keys
	Token string `json:"token"`   // for the scheme sso: a bearer token
}

// startLocked starts a server whose agent accepts API keys and tokens of an issuer. Its public card has the skill open,
// and the extended card for the key and the token also has the skill hidden.
func startLocked(t *testing.T, executor string) *locked {
	t.Helper()
	db := clustertest.OpenDB(t, storetest.New(t).URL)
	issuer := issuertest.Start(t)
	const scope = "demo:hidden"
	r := clustertest.Start(t, clustertest.Options{
		Name: "locked", DB: db.URL, Env: issuer.Trust(),
		Config: settings(executor, nettest.Reserve(t), true) + fmt.Sprintf(`
      skills:
        - {id: open, name: open, description: for all, tags: [demo]}
        - {id: hidden, name: hidden, description: for some, tags: [demo], scope: %s}
auth:
  schemes:
    - {name: keys, kind: api_key}
    - %s
`, scope, issuer.Scheme("sso", fmt.Sprintf(", jwks_url: %q", issuer.URL+"/keys"))),
	})
	key := db.Keys(store.APIKey{Scopes: []string{scope}}, "alice")[0]
	return &locked{URL: r.URL, GRPC: r.GRPC, Key: key, Token: issuer.Token("bob", scope)}
}

// cluster is two replicas on one database, and for the first ring a server that requires credentials.
type cluster struct {
	a, b   *clustertest.Replica
	locked *locked
}

func startCluster(t *testing.T, executor string, announced bool) *cluster {
	t.Helper()
	db := storetest.New(t).URL
	both := clustertest.Together(t,
		clustertest.Options{Name: "A", DB: db, Config: settings(executor, nettest.Reserve(t), announced)},
		clustertest.Options{Name: "B", DB: db, Config: settings(executor, nettest.Reserve(t), announced)})
	c := &cluster{a: both[0], b: both[1]}
	if !*ring2 {
		c.locked = startLocked(t, executor)
	}
	return c
}

// job describes the cluster to a client, which gets proxies and a receiver of its own.
func (c *cluster) job(t *testing.T, binding string) job {
	t.Helper()
	api, grpc := clustertest.NewProxy(t, a2atest.Host(c.a.URL)), clustertest.NewProxy(t, c.a.GRPC)
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/cut" {
			http.Error(w, "POST /cut", http.StatusNotFound)
			return
		}
		api.Cut()
		grpc.Cut()
	}))
	t.Cleanup(cut.Close)
	hooks := httptest.NewServer(new(receiver))
	t.Cleanup(hooks.Close)
	return job{
		Binding: binding, Receiver: hooks.URL, locked: c.locked,
		A: c.a.URL, B: c.b.URL, Through: "http://" + api.Addr, Cut: cut.URL + "/cut",
		GRPCA: c.a.GRPC, GRPCB: c.b.GRPC, GRPCThrough: grpc.Addr,
	}
}
