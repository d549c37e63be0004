package config

import (
	"encoding/json"
	"reflect"

	"go.yaml.in/yaml/v4"
)

// JSON is a value of the file that goes to a service as it is.
type JSON json.RawMessage

var jsonType = reflect.TypeFor[JSON]()

// decodeJSON reads any YAML value as JSON. ${NAME} works in its texts.
func (l *loader) decodeJSON(path string, n *yaml.Node, v reflect.Value) {
	value, ok := l.plain(path, n)
	if !ok {
		return
	}
	raw, err := json.Marshal(value)
	if err != nil {
		l.at(path, "has no form in JSON, such as .nan; write another value")
		return
	}
	v.SetBytes(raw)
}

// plain returns the Go value of a node. It reports mistakes.
func (l *loader) plain(path string, n *yaml.Node) (any, bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.SequenceNode:
		list, good := make([]any, len(n.Content)), true
		for i, item := range n.Content {
			var ok bool
			list[i], ok = l.plain(path, item)
			good = good && ok
		}
		return list, good
	case yaml.MappingNode:
		object, good := map[string]any{}, true
		l.eachKey(path, n, func(key string, _, value *yaml.Node) {
			var ok bool
			object[key], ok = l.plain(join(path, key), value)
			good = good && ok
		})
		return object, good
	default:
	}
	switch n.ShortTag() {
	case "!!bool", "!!int", "!!float", "!!null":
		var value any
		if err := n.Decode(&value); err != nil {
			l.at(path, "is not understood; write text, a number, true, false or null")
			return nil, false
		}
		return value, true
	}
	text, err := l.expand(n.Value)
	if err != nil {
		l.at(path, "%s", err)
		return nil, false
	}
	return text, true
}
