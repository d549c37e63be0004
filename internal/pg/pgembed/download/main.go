// Command download downloads a version of PostgreSQL, unless it is there already, and prints the directory of its
// programs, for HOLDFAST_PG_BIN:
//
//	HOLDFAST_PG_BIN=$(go run ./internal/pg/pgembed/download 18.3) go test ./...
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: download version, such as 18 or 18.3")
		os.Exit(2)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	b, err := pgembed.Download(context.Background(), log, os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "download:", err)
		os.Exit(1)
	}
	_, _ = fmt.Fprintln(os.Stdout, b.Dir)
}
