// Package migrations holds the steps of the database schema, in goose's format. sqlc reads the same files.
package migrations

import "embed"

// FS has every step at its root.
//
//go:embed *.sql
var FS embed.FS
