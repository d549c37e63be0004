package fronts

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/certtest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
)

// A card over HTTPS names a port for gRPC as host:port. The front calls that over TLS, and trusts the authorities of the system.
func TestFrontFindsGRPCByTheCard(t *testing.T) {
	t.Parallel()
	dir, _, _ := certtest.Mutual(t, "nobody")
	address := nettest.Reserve(t)
	settings := clustertest.Replace(clustertest.Steady, "grpc_listen: 127.0.0.1:0", fmt.Sprintf("grpc_listen: %s\npublic_grpc_address: %q", address, address))
	db := clustertest.NewDB(t)
	up := clustertest.Start(t, clustertest.Options{
		Name: "up", DB: db.URL, Config: settings + fmt.Sprintf("tls: {cert_file: %[1]s/cert.pem, key_file: %[1]s/key.pem}\n", dir),
	})
	config := clustertest.Steady + inFront("travel", fmt.Sprintf("card_url: %q, binding: grpc", "https://"+a2atest.Host(up.URL)))
	f := clustertest.Start(t, clustertest.Options{
		Name: "front", DB: clustertest.NewDB(t).URL, Config: config, Env: []string{"SSL_CERT_FILE=" + filepath.Join(dir, "ca.pem")},
	})
	res := f.Send(a2atest.V03, a2atest.Say("echo:over TLS").At("travel"))
	require.Equal(t, "completed", res.State(), res.Said())
	require.Equal(t, "over TLS", text(res))
	require.Equal(t, []string{"completed"}, clustertest.Column[string](db, "SELECT state FROM holdfast.v_tasks"))
}
