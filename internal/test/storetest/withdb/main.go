// Command withdb runs a command with DATABASE_URL set to a fresh, migrated database, which it drops afterwards:
//
//	go run ./internal/test/storetest/withdb sqlc vet
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

func main() {
	err := run(context.Background(), os.Args[1:])
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		os.Exit(failed.ExitCode()) // the command has printed its error
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "withdb:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: withdb command [argument ...]")
	}
	db, err := storetest.Create(ctx, "withdb")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+db.URL)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return errors.Join(cmd.Run(), db.Drop(ctx))
}
