package config

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
)

// Every secret has three keys: its own for a text, and two with these suffixes. A field is a secret if its type is
// *secrets.Source, which is read when it is used, or if it has the tag secret, which names the form of the value. Load reads
// the latter.
const (
	fileSuffix    = "_file"
	commandSuffix = "_command"
)

// The forms of the values that Load reads.
const (
	formText      = "text"
	formList      = "list"      // one on each line, or separated by commas
	formHeaders   = "headers"   // lines with Name: value, in addition to those of the configuration
	formVariables = "variables" // lines with NAME=value, in addition to those of the configuration
)

// secretField is a secret that a file or a command may give.
type secretField struct {
	key  string // of the text
	form string // empty: a *secrets.Source
	into reflect.Value

	given string // the key that the operator wrote
	from  *secrets.Source
}

// secretOf returns the secret that a field of a section holds, or nil.
func secretOf(path string, field reflect.StructField, v reflect.Value) *secretField {
	form := field.Tag.Get("secret")
	if form == "" && field.Type != sourceType {
		return nil
	}
	return &secretField{key: join(path, field.Tag.Get("yaml")), form: form, into: v}
}

// decodeSecret notes where a secret comes from. readSecrets reads it when the environment and the flags are known.
func (l *loader) decodeSecret(s *secretField, key string, n *yaml.Node) {
	var file string
	var argv []string
	from := reflect.ValueOf(&file).Elem()
	if strings.HasSuffix(key, commandSuffix) {
		from = reflect.ValueOf(&argv).Elem()
	}
	l.decode(key, n, from)
	switch {
	case l.hasProblem(key):
		return
	case s.from != nil:
		l.at(key, "cannot be combined with %s; remove one", s.given)
		return
	case file != "":
		s.from = secrets.File(file)
	case len(argv) > 0 && argv[0] != "":
		s.from = secrets.Command(argv...)
	default:
		l.at(key, "must not be empty")
		return
	}
	s.given = key
	l.secrets[s.key] = s
}

// secretFromEnvironment takes the path of a secret's file from a variable. It has priority over the file of the configuration.
func (l *loader) secretFromEnvironment(s *secretField, variable string, textGiven bool) {
	path, ok := l.lookup(variable)
	if !ok {
		return
	}
	key := s.key + fileSuffix
	if textGiven {
		l.origins[key] = origin{where: "environment variable " + variable}
		l.at(key, "cannot be combined with %s; unset one of the variables", strings.TrimSuffix(variable, "_FILE"))
		return
	}
	l.forget(s.key)
	delete(l.origins, s.key)
	s.into.SetZero()
	l.origins[key] = origin{where: "environment variable " + variable}
	s.given, s.from = key, secrets.File(path)
	l.secrets[s.key] = s
}

// readSecrets fills the fields whose values are in files, or come from commands.
func (l *loader) readSecrets() {
	for _, key := range slices.Sorted(maps.Keys(l.secrets)) {
		s := l.secrets[key]
		adds := s.form == formHeaders || s.form == formVariables
		if l.given(key) && !adds {
			l.at(s.given, "cannot be combined with %s; remove one", key)
			continue
		}
		if s.form == "" {
			s.into.Set(reflect.ValueOf(s.from))
		} else {
			text, err := s.from.Read(context.Background())
			if err != nil {
				l.at(s.given, "%s", err)
				continue
			}
			l.fill(s, text)
		}
		// Later checks of the value name the key that gave it.
		if !l.given(key) {
			l.origins[key] = l.origins[s.given]
		}
	}
}

// fill sets a field to the text of a file or a command.
func (l *loader) fill(s *secretField, text string) {
	switch s.form {
	case formText:
		s.into.SetString(strings.TrimSpace(text))
	case formList:
		items := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' })
		list := reflect.MakeSlice(s.into.Type(), 0, len(items))
		for _, item := range items {
			if item = strings.TrimSpace(item); item != "" {
				list = reflect.Append(list, reflect.ValueOf(item))
			}
		}
		s.into.Set(list)
	default:
		separator := ":"
		if s.form == formVariables {
			separator = "="
		}
		got, err := parseLines(text, separator)
		if err != nil {
			l.at(s.given, "%s", err)
			return
		}
		if s.into.IsNil() {
			s.into.Set(reflect.MakeMap(s.into.Type()))
		}
		into := s.into.Interface().(map[string]string) // as the tags say
		for name, value := range got {
			if _, twice := into[name]; twice {
				l.at(s.given, "has %s, which %s has, too; remove one", name, s.key)
				continue
			}
			into[name] = value
		}
	}
}

// parseLines reads lines of a name, a separator and a value. Empty lines and those that begin with # do not count. Errors
// do not show the value.
func parseLines(text, separator string) (map[string]string, error) {
	out := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, secrets.MaxBytes)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, separator)
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("line %d is not a name, %q and a value", n, separator)
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("line %d has a name that an earlier line has, too", n)
		}
		out[name] = strings.TrimSpace(value)
	}
	return out, lines.Err()
}
