package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
)

// throwaway has the settings for a fast cluster without durability.
var throwaway = map[string]string{
	"fsync": "off", "full_page_writes": "off", "max_wal_size": "4GB", "max_connections": "500", "jit": "off",
}

func obtain(ctx context.Context, log *slog.Logger) (*server, error) {
	if given := os.Getenv(EnvURL); given != "" {
		return &server{url: given, keep: func() {}}, nil
	}
	b, err := pgembed.Find(ctx, log, 0)
	if err == nil {
		return cluster(ctx, log, b.Version)
	}
	s, containerErr := container(ctx)
	if containerErr == nil {
		return s, nil
	}
	log.Warn("no test database from Docker; fetching PostgreSQL's programs, which may take minutes", "error", containerErr)
	return cluster(ctx, log, "any")
}

// container runs PostgreSQL in Docker for this test process; testcontainers removes it when the process has ended.
func container(ctx context.Context) (_ *server, err error) {
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	defer func() { _ = provider.Close() }()
	if err := provider.Health(ctx); err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	c, err := postgres.Run(ctx, "postgres:17-alpine",
		// Its first start is for the image's own preparations.
		testcontainers.WithAdditionalWaitStrategy(wait.ForLog("database system is ready to accept connections").WithOccurrence(2)),
		testcontainers.WithCmdArgs("-c", "fsync=off", "-c", "max_connections=500"))
	defer func() {
		if err != nil {
			err = errors.Join(err, testcontainers.TerminateContainer(c))
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	published, err := c.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	urls := []string{published}
	if ip, err := c.ContainerIP(ctx); err == nil && ip != "" {
		u, err := url.Parse(published)
		if err != nil {
			return nil, fmt.Errorf("docker: %w", err)
		}
		u.Host = net.JoinHostPort(ip, "5432")
		urls = append(urls, u.String())
	}
	answers, err := reachable(ctx, urls...)
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	return &server{url: answers, keep: func() {}}, nil
}

// reach bounds the time to find an address of a container whose PostgreSQL runs.
const reach = 5 * time.Second

// reachable returns the first of the URLs at which a PostgreSQL answers. Where these tests run in a container
// themselves, only the second address of the other container may be reachable: the published port is the machine's.
func reachable(ctx context.Context, urls ...string) (string, error) {
	var failed []error
	for _, u := range urls {
		ctx, cancel := context.WithTimeout(ctx, reach)
		defer cancel()
		for {
			conn, err := pgx.Connect(ctx, u)
			if err == nil {
				return u, conn.Close(ctx)
			}
			select {
			case <-time.After(50 * time.Millisecond): // Docker Desktop publishes a port some time after it says so
				continue
			case <-ctx.Done():
				failed = append(failed, err)
			}
			break
		}
	}
	return "", fmt.Errorf("PostgreSQL runs in a container that cannot be reached from here; set TESTCONTAINERS_HOST_OVERRIDE: %w", errors.Join(failed...))
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
	err := os.Mkdir(dir, 0o755)
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
// each one starts a janitor: this same binary in a special mode. One janitor stays on duty; the
// others see its lock and exit. It waits until no test process has used the cluster for a while,
// and removes it.
const (
	envJanitor = "HOLDFAST_STORETEST_JANITOR"
	// EnvLinger is how long a cluster stays that no process uses; between two packages, that happens for a moment.
	EnvLinger = "HOLDFAST_STORETEST_LINGER"
	linger    = 15 * time.Second
	dutyFile  = "janitor.lock" // locked by the janitor on duty
	keptFile  = "kept"         // touched when a failed test left its database
	keptFor   = 30 * time.Minute
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

// janitor looks after the cluster in dir until it is removed, or until another janitor does.
func janitor(ctx context.Context, dir string) error {
	for {
		if onDuty, err := lookAfter(ctx, dir); !onDuty || err != nil {
			return err
		}
		// A process may have started the cluster again before we gave up the duty. Then its janitor saw us on duty, and
		// left.
		if _, pid, err := pgembed.Look(dir); err != nil || pid == 0 {
			return nil //nolint:nilerr // the cluster's directory is gone
		}
	}
}

// lookAfter waits until no process has used the cluster for a while, and removes it. It returns false at once if
// another janitor is on duty.
func lookAfter(ctx context.Context, dir string) (onDuty bool, err error) {
	lock, err := os.OpenFile(filepath.Join(dir, dutyFile), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return false, err
	}
	// This also keeps the file from garbage collection, which would close it. Then every janitor would go on duty, each
	// would see the others use the cluster, and none would end.
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return false, nil // another janitor is on duty
	}
	s, err := pgembed.Start(ctx, pgembed.Options{Dir: dir, Log: slog.New(slog.DiscardHandler), Settings: throwaway})
	if err != nil {
		return true, err
	}
	unused := linger
	if d, err := time.ParseDuration(os.Getenv(EnvLinger)); err == nil {
		unused = d
	}
	kept := filepath.Join(dir, keptFile)
	for used := time.Now(); ; time.Sleep(min(unused, time.Second)) {
		alone, err := s.Alone(ctx)
		if err != nil {
			return true, err
		}
		if !alone {
			used = time.Now()
		}
		wait := unused
		if info, err := os.Stat(kept); err == nil && time.Since(info.ModTime()) < keptFor {
			wait = max(wait, keptFor)
		}
		if time.Since(used) < wait {
			continue
		}
		_ = os.Remove(kept)
		return true, s.Destroy(ctx)
	}
}
