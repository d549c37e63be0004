package cli

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
)

// profile is a server with what an operator needs to use it. Its file has no credential, only where to find it.
type profile struct {
	Server            string   `yaml:"server"`
	CredentialFile    string   `yaml:"credential_file"`
	CredentialCommand []string `yaml:"credential_command"`
	CredentialEnv     string   `yaml:"credential_env"`
	CAFile            string   `yaml:"ca_file"`

	variable string // the value of CredentialEnv
}

// credential returns where the credential is, and the name of the setting. Nil: the profile has none.
func (p *profile) credential() (*secrets.Source, string) {
	switch {
	case p.CredentialFile != "":
		return secrets.File(p.CredentialFile), "credential_file of the profile"
	case len(p.CredentialCommand) > 0:
		return secrets.Command(p.CredentialCommand...), "credential_command of the profile"
	}
	return secrets.Text(p.variable), "credential_env of the profile"
}

// profilesFile is where the profiles are.
func (c *command) profilesFile() string {
	if file := c.env("HOLDFAST_PROFILES"); file != "" {
		return file
	}
	return filepath.Join(cmp.Or(c.env("XDG_CONFIG_HOME"), filepath.Join(c.env("HOME"), ".config")), "holdfast", "profiles.yaml")
}

// readProfiles returns the profiles by name.
func readProfiles(file string) (map[string]profile, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var content struct {
		Profiles map[string]profile `yaml:"profiles"`
	}
	from, err := yaml.NewLoader(bytes.NewReader(raw), yaml.WithKnownFields())
	if err == nil {
		err = from.Load(&content)
	}
	return content.Profiles, err
}

// useProfile reads the profile of --profile or HOLDFAST_PROFILE, if one is named. --server has priority, as a flag over a file.
func (c *command) useProfile() error {
	name := cmp.Or(c.profileName, c.env("HOLDFAST_PROFILE"))
	if name == "" {
		return nil
	}
	file := c.profilesFile()
	all, err := readProfiles(file)
	if err != nil {
		return usage("profile %q: %w", name, err)
	}
	p, ok := all[name]
	if !ok {
		return usage("%s has no profile %q; its profiles are %s", file, name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	if err := p.check(); err != nil {
		return usage("%s: profile %q: %w", file, name, err)
	}
	for _, path := range []*string{&p.CredentialFile, &p.CAFile} {
		if rest, home := strings.CutPrefix(*path, "~/"); home {
			*path = filepath.Join(c.env("HOME"), rest)
		}
	}
	if p.CredentialEnv != "" {
		p.variable = c.env(p.CredentialEnv)
		if p.variable == "" {
			return usage("%s: profile %q: the variable %s is not set", file, name, p.CredentialEnv)
		}
	}
	c.profile = p
	return nil
}

func (p *profile) check() error {
	ways := 0
	for _, given := range []bool{p.CredentialFile != "", len(p.CredentialCommand) > 0, p.CredentialEnv != ""} {
		if given {
			ways++
		}
	}
	switch {
	case p.Server == "":
		return errors.New("server is missing; write the admin address, such as https://holdfast-admin.example.com")
	case ways > 1:
		return errors.New("credential_file, credential_command and credential_env exclude each other; keep one")
	}
	return nil
}
