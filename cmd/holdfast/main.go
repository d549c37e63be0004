// Command holdfast is the program of cmd/server: go install names a binary after its folder.
package main

import (
	"os"

	"github.com/holdfast-a2a/holdfast/internal/cli"
)

func main() { os.Exit(cli.Main(nil)) }
