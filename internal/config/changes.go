package config

import (
	"maps"
	"reflect"
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

// Watch loads the configuration, and returns a function that loads it again and compares it. Its error is that of Load.
func (src *Source) Watch() (*Config, func() (*Change, error), error) {
	l, used, err := load(*src)
	if err != nil {
		return nil, nil, err
	}
	was := settings(l.content)
	return used, func() (*Change, error) {
		l, cfg, err := load(*src)
		if err != nil {
			return nil, err
		}
		now, changed := settings(l.content), map[string]bool{}
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
		if len(changed) == 0 && !reflect.DeepEqual(used.Agents, cfg.Agents) {
			changed["agents"] = true // their order, or a secret in a file
		}
		return &Change{Config: cfg, Keys: slices.Sorted(maps.Keys(changed)), Took: func() { used, was = cfg, now }}, nil
	}, nil
}

func joined(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// settings returns the texts of a file by their keys, as they are there.
func settings(content *yaml.Node) map[string]string {
	out := map[string]string{}
	if content != nil {
		flatten("", content, out)
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
