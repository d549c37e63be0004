package config

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Change is a configuration that was loaded again.
type Change struct {
	Config *Config
	Keys   []string // that differ in the file. An added or removed member of a list is named once
	// Took says that the process uses it: later ones are compared with it.
	Took func()
}

// OnlyAgents reports whether no other part has changed.
func (c *Change) OnlyAgents() bool {
	return !slices.ContainsFunc(c.Keys, func(key string) bool { return !strings.HasPrefix(key, "agents") })
}

// Changes returns a function that loads the configuration again, and compares its file with that of now. The error is that of Load.
func (src *Source) Changes() func() (*Change, error) {
	was := src.settings()
	return func() (*Change, error) {
		cfg, err := Load(*src)
		if err != nil {
			return nil, err
		}
		now, changed := src.settings(), map[string]bool{}
		for key := range joined(was, now) {
			before, had := was[key]
			after, has := now[key]
			if had == has && before == after {
				continue
			}
			for i, c := range key {
				_, had := was[key[:i]+".name"]
				if _, has := now[key[:i]+".name"]; c == '.' && had != has {
					key = key[:i]
					break
				}
			}
			changed[key] = true
		}
		return &Change{Config: cfg, Keys: slices.Sorted(maps.Keys(changed)), Took: func() { was = now }}, nil
	}
}

func joined(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// settings returns the texts of the file by their keys, as they are there.
func (src *Source) settings() map[string]string {
	out := map[string]string{}
	var doc yaml.Node
	raw, err := os.ReadFile(src.path())
	if err == nil && yaml.Unmarshal(raw, &doc) == nil && len(doc.Content) > 0 { // else there is no file, or Load says what is wrong
		flatten("", doc.Content[0], out)
	}
	return out
}

func flatten(key string, n *yaml.Node, to map[string]string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			flatten(join(key, n.Content[i].Value), n.Content[i+1], to)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			name := strconv.Itoa(i)
			for j := 0; item.Kind == yaml.MappingNode && j+1 < len(item.Content); j += 2 {
				if item.Content[j].Value == "name" {
					name = item.Content[j+1].Value
				}
			}
			flatten(key+"["+name+"]", item, to)
		}
	default:
		to[key] = n.ShortTag() + n.Value
	}
}
