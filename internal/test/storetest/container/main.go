// Command container runs a command with HOLDFAST_TEST_DATABASE_URL set to a PostgreSQL in Docker, which ends with it:
//
//	go run ./internal/test/storetest/container make test
//
// It is apart from storetest, which tests of users' agents compile, too.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

func main() {
	err := run(context.Background(), os.Args[1:])
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		os.Exit(failed.ExitCode()) // the command has printed its error
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "container:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) == 0 {
		return errors.New("usage: container command [argument ...]")
	}
	c, err := postgres.Run(ctx, "postgres:17-alpine",
		// Its first start is for the image's own preparations.
		testcontainers.WithAdditionalWaitStrategy(wait.ForLog("database system is ready to accept connections").WithOccurrence(2)),
		testcontainers.WithCmdArgs("-c", "fsync=off", "-c", "max_connections=500"))
	defer func() { err = errors.Join(err, testcontainers.TerminateContainer(c)) }()
	if err != nil {
		return err
	}
	at, err := address(ctx, c)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), storetest.EnvURL+"="+at)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// address returns a URL at which the PostgreSQL answers. If this process runs in a container itself, only the address of the other
// container may be reachable: the published port is the machine's.
func address(ctx context.Context, c *postgres.PostgresContainer) (string, error) {
	published, err := c.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return "", err
	}
	urls := []string{published}
	if ip, err := c.ContainerIP(ctx); err == nil && ip != "" {
		u, err := url.Parse(published)
		if err != nil {
			return "", err
		}
		u.Host = net.JoinHostPort(ip, "5432")
		urls = append(urls, u.String())
	}
	var failed []error
	for _, at := range urls {
		if err := answers(ctx, at); err != nil {
			failed = append(failed, err)
			continue
		}
		return at, nil
	}
	return "", fmt.Errorf("PostgreSQL runs in a container that cannot be reached from here; set TESTCONTAINERS_HOST_OVERRIDE: %w", errors.Join(failed...))
}

// answers waits until a PostgreSQL answers: Docker Desktop publishes a port some time after it says so.
func answers(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, at)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}
