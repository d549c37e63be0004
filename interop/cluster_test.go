//go:build interop

package interop

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

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

// free returns an address with a port that was free a moment ago.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// cluster is two replicas on one database.
type cluster struct{ a, b *clustertest.Replica }

func startCluster(t *testing.T, executor string, announced bool) *cluster {
	t.Helper()
	db := storetest.New(t).URL
	both := clustertest.Together(t,
		clustertest.Options{Name: "A", DB: db, Config: settings(executor, free(t), announced)},
		clustertest.Options{Name: "B", DB: db, Config: settings(executor, free(t), announced)})
	return &cluster{both[0], both[1]}
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
		Binding: binding, Receiver: hooks.URL,
		A: c.a.URL, B: c.b.URL, Through: "http://" + api.Addr, Cut: cut.URL + "/cut",
		GRPCA: c.a.GRPC, GRPCB: c.b.GRPC, GRPCThrough: grpc.Addr,
	}
}
