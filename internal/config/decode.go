package config

import (
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
	keepType     = reflect.TypeFor[Keep]()
	sourceType   = reflect.TypeFor[*secrets.Source]()
)

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (l *loader) where(n *yaml.Node) string { return fmt.Sprintf("%s:%d", l.file, n.Line) }

// withVariables returns the text of a value that names variables, or "". For a list or a mapping it is Hidden.
func withVariables(n *yaml.Node) string {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "${") {
		return n.Value
	}
	for _, child := range n.Content {
		if child.Kind != yaml.AliasNode && withVariables(child) != "" {
			return Hidden
		}
	}
	return ""
}

// decode reads a node into a field, reports what does not fit, and remembers the position of the value. It works on
// nodes, not on values, because only nodes know their lines.
func (l *loader) decode(path string, n *yaml.Node, v reflect.Value) {
	l.origins[path] = origin{where: l.where(n), line: n.Line, text: withVariables(n)}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case v.Type() == sourceType && n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null":
		var text string
		l.decodeScalar(path, n, reflect.ValueOf(&text).Elem())
		v.Set(reflect.ValueOf(secrets.Text(text)))
	case v.Type() == jsonType:
		l.decodeJSON(path, n, v)
	case v.Kind() == reflect.Struct:
		l.decodeSection(path, n, v)
	case v.Kind() == reflect.Slice:
		l.decodeList(path, n, v)
	case v.Kind() == reflect.Map:
		l.decodeMap(path, n, v)
	case n.Kind != yaml.ScalarNode:
		l.at(path, "is %s; write %s", describe(n), wanted(v.Type()))
	case n.ShortTag() == "!!null":
		l.at(path, "is empty; give a value or remove the key")
	default:
		l.decodeScalar(path, n, v)
	}
}

func (l *loader) decodeSection(path string, n *yaml.Node, v reflect.Value) {
	if isNull(n) {
		return // a section whose keys are all commented out
	}
	if n.Kind != yaml.MappingNode {
		l.at(path, "is %s; write a section with keys", describe(n))
		return
	}
	fields, secrets := map[string]reflect.Value{}, map[string]*secretField{}
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("yaml")
		fields[key] = v.Field(i)
		if s := secretOf(path, v.Type().Field(i), v.Field(i)); s != nil {
			fields[key+fileSuffix], fields[key+commandSuffix] = reflect.Value{}, reflect.Value{}
			secrets[key+fileSuffix], secrets[key+commandSuffix] = s, s
		}
	}
	l.eachKey(path, n, func(key string, name, value *yaml.Node) {
		if s := secrets[key]; s != nil {
			l.decodeSecret(s, join(path, key), value)
			return
		}
		field, ok := fields[key]
		if !ok {
			l.problems = append(l.problems, Problem{
				Where: l.where(name), line: name.Line, Key: join(path, key), Text: "unknown key" + suggest(key, fields),
			})
			return
		}
		l.decode(join(path, key), value, field)
	})
}

func (l *loader) decodeList(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		l.at(path, "is %s; write a list", describe(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		element := list.Index(i)
		if element.Kind() == reflect.Struct {
			fill(element)
		}
		l.decode(fmt.Sprintf("%s[%d]", path, i), item, element)
	}
	v.Set(list)
}

func (l *loader) decodeMap(path string, n *yaml.Node, v reflect.Value) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		l.at(path, "is %s; write names with values", describe(n))
		return
	}
	m := reflect.MakeMap(v.Type())
	l.eachKey(path, n, func(key string, _, value *yaml.Node) {
		element := reflect.New(v.Type().Elem()).Elem()
		l.decode(join(path, key), value, element)
		m.SetMapIndex(reflect.ValueOf(key), element)
	})
	v.Set(m)
}

// eachKey visits the keys of a mapping and reports duplicate keys.
func (l *loader) eachKey(path string, n *yaml.Node, visit func(key string, name, value *yaml.Node)) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		problem := Problem{Where: l.where(name), line: name.Line, Key: join(path, name.Value)}
		line, twice := first[name.Value]
		switch {
		case name.ShortTag() == "!!merge":
			problem.Key = path
			problem.Text = "merge keys (<<) are not supported; use an alias for a whole value"
		case name.Kind != yaml.ScalarNode:
			problem.Key = path
			problem.Text = "a key must be a plain name"
		case twice:
			problem.Text = fmt.Sprintf("is given twice, first in line %d; remove one", line)
		default:
			first[name.Value] = name.Line
			visit(name.Value, name, value)
			continue
		}
		l.problems = append(l.problems, problem)
	}
}

// decodeScalar compares the YAML type with the field, because the text alone is not enough. version: 1.10 is a string
// for us, but enabled: "yes" is not a boolean.
func (l *loader) decodeScalar(path string, n *yaml.Node, v reflect.Value) {
	tag := n.ShortTag()
	expands := strings.Contains(n.Value, "${")
	switch {
	case v.Kind() == reflect.Bool && tag != "!!bool" && !expands,
		v.Kind() == reflect.Int && tag != "!!int" && !expands,
		v.Kind() == reflect.String && tag == "!!bool":
		l.at(path, "is %s; write %s", describe(n), wanted(v.Type()))
		return
	}
	text, err := l.expand(n.Value)
	if err != nil {
		l.at(path, "%s", err)
		return
	}
	l.setText(path, text, v)
}

// expand replaces ${NAME} by the environment variable; $${ means a literal ${. Problems name the variable. They never
// show a value, because it may be a secret.
func (l *loader) expand(s string) (string, error) {
	var b strings.Builder
	var missing []string
	for {
		start := strings.Index(s, "${")
		if start < 0 {
			break
		}
		if start > 0 && s[start-1] == '$' {
			b.WriteString(s[:start-1] + "${")
			s = s[start+2:]
			continue
		}
		name, rest, closed := strings.Cut(s[start+2:], "}")
		if !closed {
			return "", fmt.Errorf("${ without a closing }; write $${ for a literal ${")
		}
		var value string
		ok := false
		if l.env != nil {
			value, ok = l.env(name)
		}
		if !ok {
			missing = append(missing, name)
		}
		b.WriteString(s[:start] + value)
		s = rest
	}
	if missing != nil {
		return "", fmt.Errorf("environment variable %s is not set", strings.Join(missing, ", "))
	}
	return b.String() + s, nil
}

// setText parses text into a field. Commas separate a list of strings, as the environment and flags write it.
func (l *loader) setText(path, text string, v reflect.Value) {
	switch {
	case v.Type() == durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			l.at(path, "%q is not a duration; write 30s, 5m or 1h30m", text)
			return
		}
		v.SetInt(int64(d))
	case v.Type() == sizeType:
		size, err := ParseSize(text)
		if err != nil {
			l.at(path, "%q %s", text, err)
			return
		}
		v.SetInt(int64(size))
	case v.Type() == keepType:
		keep, err := ParseKeep(text)
		if err != nil {
			l.at(path, "%q %s", text, err)
			return
		}
		v.SetInt(int64(keep))
	case v.Type() == sourceType:
		v.Set(reflect.ValueOf(secrets.Text(text)))
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			l.at(path, "is text; write %s", wanted(v.Type()))
			return
		}
		v.SetBool(b)
	case v.Kind() == reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			l.at(path, "is not %s", wanted(v.Type()))
			return
		}
		v.SetInt(int64(n))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Slice:
		items := strings.Split(text, ",")
		list := reflect.MakeSlice(v.Type(), len(items), len(items))
		for i, item := range items {
			list.Index(i).SetString(strings.TrimSpace(item))
		}
		v.Set(list)
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a section with keys"
	case yaml.SequenceNode:
		return "a list"
	default:
	}
	switch n.ShortTag() {
	case "!!bool":
		return "a boolean"
	case "!!int", "!!float":
		return "a number"
	case "!!null":
		return "empty"
	}
	return "text"
}

func wanted(t reflect.Type) string {
	switch {
	case t == durationType:
		return "a duration such as 30s"
	case t == sizeType:
		return "a size such as 16MiB"
	case t == keepType:
		return "a duration such as 720h, or forever"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	}
	return "text"
}

// suggest returns the known key that is closest to an unknown one.
func suggest(key string, known map[string]reflect.Value) string {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if near(plain(key), plain(name)) {
			return "; did you mean " + name + "?"
		}
	}
	return "; the keys here are " + strings.Join(names, ", ")
}

// near reports whether two words differ by one letter left out, added or changed, or by two swapped neighbours.
func near(a, b string) bool {
	if len(a) < len(b) {
		a, b = b, a
	}
	if len(a)-len(b) > 1 {
		return false
	}
	i := 0
	for i < len(b) && a[i] == b[i] {
		i++
	}
	if len(a) > len(b) {
		return a[i+1:] == b[i:]
	}
	if i == len(a) || a[i+1:] == b[i+1:] {
		return true
	}
	return i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}
