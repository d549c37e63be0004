package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/pgembed"
)

// replicas are the addresses of the servers under load.
var replicas []string

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		// Nothing to measure, as in go test ./...
		os.Exit(m.Run())
	}
	code, err := withCluster(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		code = 1
	}
	os.Exit(code)
}

// withCluster runs f with two replicas on a PostgreSQL of their own, or on the one
// that HOLDFAST_BENCH_DATABASE_URL names.
func withCluster(f func() int) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir, err := os.MkdirTemp("", "holdfast-bench")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// As root, PostgreSQL runs as another user, who must get in.
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	url := os.Getenv("HOLDFAST_BENCH_DATABASE_URL")
	if url == "" {
		pg, err := pgembed.Start(ctx, pgembed.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return 1, err
		}
		defer func() { _ = pg.Destroy(context.WithoutCancel(ctx)) }()
		url = pg.DSN()
	}
	bin := filepath.Join(dir, "holdfast")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "../cmd/server").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build: %w\n%s", err, out)
	}
	for range 2 {
		addr, admin := freeAddr(), freeAddr()
		cmd := exec.CommandContext(ctx, bin)
		cmd.Env = append(os.Environ(), "HOLDFAST_DATABASE_URL="+url, "HOLDFAST_LISTEN="+addr,
			"HOLDFAST_ADMIN_LISTEN="+admin, "HOLDFAST_LOG_LEVEL=warn")
		cmd.Stderr = os.Stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		if err := cmd.Start(); err != nil {
			return 1, err
		}
		defer func() { cancel(); _ = cmd.Wait() }()
		if err := awaitReady(ctx, admin); err != nil {
			return 1, err
		}
		replicas = append(replicas, addr)
		admins = append(admins, admin)
	}
	return f(), nil
}

var admins []string

func freeAddr() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func awaitReady(ctx context.Context, admin string) error {
	deadline := time.Now().Add(60 * time.Second)
	for time.Now().Before(deadline) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("the server at %s did not become ready", admin)
}
