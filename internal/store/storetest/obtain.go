package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"

	"github.com/holdfast-a2a/holdfast/internal/pgembed"
)

// throwaway has the settings for a fast cluster without durability.
var throwaway = map[string]string{
	"fsync": "off", "full_page_writes": "off", "max_wal_size": "4GB", "max_connections": "500", "jit": "off",
}

func obtain(ctx context.Context, log *slog.Logger) (*server, error) {
	if url := os.Getenv(EnvURL); url != "" {
		return &server{url: url, keep: func() {}}, nil
	}
	b, err := pgembed.Find(ctx, log, 0)
	if err == nil {
		return cluster(ctx, log, b.Version)
	}
	s, containerErr := container(ctx)
	if containerErr == nil {
		return s, nil
	}
	log.Warn("no test database from Docker", "error", containerErr)
	return cluster(ctx, log, "any")
}

// container runs PostgreSQL in Docker for this test process; testcontainers removes it when the process has ended.
func container(ctx context.Context) (*server, error) {
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	defer func() { _ = provider.Close() }()
	if err := provider.Health(ctx); err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	c, err := postgres.Run(ctx, "postgres:17-alpine", postgres.BasicWaitStrategies(),
		testcontainers.WithCmdArgs("-c", "fsync=off", "-c", "max_connections=500"))
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	url, err := c.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	return &server{url: url, keep: func() {}}, nil
}

// cluster starts or uses the throwaway cluster of this user, which all test processes with this version of PostgreSQL
// share.
func cluster(ctx context.Context, log *slog.Logger, version string) (*server, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-test-%d-%s", os.Geteuid(), version))
	if err := private(dir); err != nil {
		return nil, err
	}
	// This process keeps its lease until it ends in any way; then the janitor notices.
	s, err := pgembed.Start(ctx, pgembed.Options{Dir: dir, Log: log, Settings: throwaway})
	if err != nil {
		return nil, err
	}
	if err := callJanitor(ctx, dir); err != nil {
		return nil, err
	}
	keep := func() { _ = os.WriteFile(filepath.Join(dir, keptFile), nil, 0o600) }
	return &server{url: s.DSN(), keep: keep, cluster: s}, nil
}

// private creates a directory that only this user can write to. Its name is predictable, so another
// user may have created it.
func private(dir string) error {
	err := os.Mkdir(dir, 0o755) //nolint:gosec // as root, PostgreSQL's user passes through
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("test cluster: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("test cluster: %w", err)
	}
	if !info.IsDir() || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("test cluster: %s belongs to somebody else", dir)
	}
	return nil
}

// A test process does not know whether it is the last of `go test ./...`, and may be killed. So
// each one starts a janitor: this same binary in a special mode. One janitor stays; the others see
// its lock and exit. It waits until no test process has used the cluster for a while, and removes
// it.
const (
	envJanitor = "HOLDFAST_STORETEST_JANITOR"
	keptFile   = "kept"           // touched when a failed test left its database
	linger     = 15 * time.Second // between two packages, no process may use the cluster for a moment
	keptFor    = 30 * time.Minute
)

func callJanitor(ctx context.Context, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("test cluster: %w", err)
	}
	// No pipes: go test would wait until they are closed. No context either, because the janitor
	// must outlive this process.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), envJanitor+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("test cluster: %w", err)
	}
	return cmd.Process.Release()
}

func init() {
	if dir := os.Getenv(envJanitor); dir != "" {
		if err := janitor(context.Background(), dir); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func janitor(ctx context.Context, dir string) error {
	lock, err := os.OpenFile(filepath.Join(dir, "janitor.lock"), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil //nolint:nilerr // another janitor is on duty
	}
	log := slog.New(slog.DiscardHandler)
	s, err := pgembed.Start(ctx, pgembed.Options{Dir: dir, Log: log, Settings: throwaway})
	if err != nil {
		return err
	}
	used := time.Now()
	for {
		time.Sleep(time.Second)
		alone, err := s.Alone(ctx)
		if err != nil {
			return err
		}
		if !alone {
			used = time.Now()
		}
		wait := linger
		if info, err := os.Stat(filepath.Join(dir, keptFile)); err == nil && time.Since(info.ModTime()) < keptFor {
			wait = keptFor
		}
		if time.Since(used) < wait {
			continue
		}
		_ = os.Remove(filepath.Join(dir, keptFile))
		return s.Destroy(ctx)
	}
}
