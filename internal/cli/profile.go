package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
)

// profile is a server with what an operator needs to use it. Its file has no credential, only where to find it.
type profile struct {
	Server            string   `yaml:"server" json:"server"`
	CredentialFile    string   `yaml:"credential_file,omitempty" json:"credential_file,omitempty"`
	CredentialCommand []string `yaml:"credential_command,omitempty" json:"credential_command,omitempty"`
	CredentialEnv     string   `yaml:"credential_env,omitempty" json:"credential_env,omitempty"`
	CAFile            string   `yaml:"ca_file,omitempty" json:"ca_file,omitempty"`

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

func (c *command) profiles() *cobra.Command {
	return group(&cobra.Command{
		Use: "profile", Short: "Name servers and where their credentials are",
		Long:    `Profiles are in ~/.config/holdfast/profiles.yaml; holdfast help profiles says how verbs use them.`,
		Example: `  holdfast profile add prod --server https://holdfast-admin.example.com --credential-file ~/.holdfast-prod`,
	}, c.profileAdd())
}

func (c *command) profileAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add NAME --server URL", Short: "Add a profile, or replace one",
		Long:    `Write a profile into the file of profiles. The others stay as they are, with their comments.`,
		Example: `  holdfast profile add prod --server https://holdfast-admin.example.com --credential-file ~/.holdfast-prod`,
	}
	var p profile
	flags := cmd.Flags()
	flags.StringVar(&p.Server, "server", "", "admin address of the server (required)")
	flags.StringVar(&p.CredentialFile, "credential-file", "", "file with an API key or a token")
	flags.StringVar(&p.CredentialEnv, "credential-env", "", "variable with an API key or a token")
	flags.StringVar(&p.CAFile, "ca-file", "", "certificates to trust instead of those of the machine, in PEM")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := p.check(); err != nil {
			return usage("%w", err)
		}
		file := c.profilesFile()
		if err := addProfile(file, args[0], &p); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		return c.print(map[string]*profile{args[0]: &p}, [][]string{{"added " + args[0] + " to " + file + "; use it with --profile " + args[0]}})
	}
	return cmd
}

// addProfile writes a profile into a file of profiles, whose other content stays.
func addProfile(file, name string, p *profile) error {
	raw, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(raw)) == 0:
		raw = []byte("profiles:\n  {}\n")
	case err != nil:
		return err
	default:
		if _, err = readProfiles(file); err != nil { // with a mistake, nobody knows what the rest is
			return err
		}
	}
	var content struct {
		Profiles yaml.Node `yaml:"profiles"`
	}
	var entry yaml.Node
	if err := errors.Join(yaml.Unmarshal(raw, &content), entry.Encode(p)); err != nil {
		return err
	}
	all := &content.Profiles
	all.Kind, all.Tag, all.Style, all.Value = yaml.MappingNode, "", 0, ""
	at := slices.IndexFunc(all.Content, func(n *yaml.Node) bool { return n.Value == name })
	if at < 0 || at%2 == 1 {
		at = len(all.Content)
		all.Content = append(all.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, nil)
	}
	all.Content[at+1] = &entry
	out, err := yaml.Marshal(&content)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, out, 0o600)
}
