// Command download downloads a version of PostgreSQL, unless it is there already, and prints the directory of its
// programs, for HOLDFAST_PG_BIN:
//
//	HOLDFAST_PG_BIN=$(go run ./internal/pg/pgembed/download 18.3) go test ./...
//
// With two arguments it puts the programs for a platform, packed, into a directory, and prints their file:
//
//	go run ./internal/pg/pgembed/download linux-arm64v8 dist
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
)

func main() {
	log, ctx := slog.New(slog.NewTextHandler(os.Stderr, nil)), context.Background()
	var place string
	var err error
	switch len(os.Args) {
	case 2:
		var b pgembed.Binaries
		b, err = pgembed.Download(ctx, log, os.Args[1])
		place = b.Dir
	case 3:
		place, err = pgembed.Pack(ctx, log, os.Args[1], os.Args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: download VERSION, such as 18 or 18.3; or download PLATFORM DIRECTORY")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "download:", err)
		os.Exit(1)
	}
	_, _ = fmt.Fprintln(os.Stdout, place)
}
