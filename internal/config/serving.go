package config

import (
	"os"
	"path/filepath"
	"strings"
)

// servingFile is in the data directory of an embedded database while a server uses it. Verbs in this directory find the server by it.
const servingFile = "serving"

// Serving says where the server of a data directory listens.
type Serving struct {
	URL                             string // of the API
	Listen, GRPCListen, AdminListen string // as in the configuration
}

// Write tells the verbs of this directory.
func (s *Serving) Write(dataDir string) error {
	lines := []string{s.URL, s.Listen, s.GRPCListen, s.AdminListen}
	return os.WriteFile(filepath.Join(dataDir, servingFile), []byte(strings.Join(lines, "\n")), 0o600)
}

// ReadServing returns what the server of a data directory has written; nil: none serves.
func ReadServing(dataDir string) *Serving {
	raw, err := os.ReadFile(filepath.Join(dataDir, servingFile))
	lines := strings.Split(string(raw), "\n")
	if err != nil || len(lines) != 4 {
		return nil
	}
	return &Serving{lines[0], lines[1], lines[2], lines[3]}
}

// ForgetServing removes what Write has written.
func ForgetServing(dataDir string) { _ = os.Remove(filepath.Join(dataDir, servingFile)) }

// serving sets the addresses to those of the server of the data directory, where flags and the environment give none: dev may have moved
// them.
func (l *loader) serving(c *Config) {
	s := ReadServing(c.DataDir)
	if c.DatabaseURL != "" || s == nil {
		return
	}
	for key, at := range map[string]struct {
		address *string
		is      string
	}{
		"listen": {&c.Listen, s.Listen}, "grpc_listen": {&c.GRPCListen, s.GRPCListen}, "admin_listen": {&c.AdminListen, s.AdminListen},
	} {
		if l.origins[key].where == "" || l.origins[key].line > 0 {
			*at.address = at.is
		}
	}
}
