package config

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// Setting is the value of a key, as Load completes it, and where it comes from.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"` // Hidden for a secret
	From  string `json:"from"`  // file:line, a variable, a flag, or FromDefault
}

const (
	// Hidden stands for a secret in a Setting.
	Hidden = "***"
	// FromDefault is the origin of values that nobody has set. Some depend on other keys.
	FromDefault = "default"
)

// Settings loads a configuration and returns all its keys with their values, in the order of docs/configuration.md. Its error
// is that of Load.
func Settings(src Source) ([]Setting, error) {
	l, c, err := load(src)
	if err != nil {
		return nil, err
	}
	return l.settings(nil, "", reflect.ValueOf(*c)), nil
}

func (l *loader) settings(out []Setting, path string, section reflect.Value) []Setting {
	kind := ""
	if k := section.FieldByName("Kind"); k.IsValid() {
		kind = k.String()
	}
	for i := range section.NumField() {
		field, v := section.Type().Field(i), section.Field(i)
		name := field.Tag.Get("yaml")
		key := join(path, name)
		secret := secretOf(path, field, v) != nil
		switch {
		case v.Kind() == reflect.Struct:
			if kind == "" || name == kind || !sections[name] {
				out = l.settings(out, key, v)
			}
		case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct && v.Len() > 0:
			for j := range v.Len() {
				out = l.settings(out, fmt.Sprintf("%s[%d]", key, j), v.Index(j))
			}
		case v.Kind() == reflect.Map && v.Len() > 0:
			for _, name := range slices.Sorted(maps.Keys(mapOf(v))) {
				out = append(out, l.setting(join(key, name), v.MapIndex(reflect.ValueOf(name)), secret))
			}
		default:
			out = append(out, l.setting(key, v, secret))
		}
	}
	return out
}

// sections are those of a kind, in an executor or a scheme. Load refuses all but that of the kind.
var sections = map[string]bool{
	string(ExecutorHTTP): true, string(ExecutorCommand): true, string(ExecutorOpenAI): true, string(ExecutorA2A): true, string(ExecutorWorker): true,
	string(AuthAPIKey): true, string(AuthBasic): true, string(AuthJWT): true, string(AuthMTLS): true,
}

func mapOf(v reflect.Value) map[string]struct{} {
	names := map[string]struct{}{}
	for _, k := range v.MapKeys() {
		names[k.String()] = struct{}{}
	}
	return names
}

func (l *loader) setting(key string, v reflect.Value, secret bool) Setting {
	o := l.origins[key]
	s := Setting{Key: key, Value: cmp.Or(o.text, plainText(v)), From: cmp.Or(o.where, FromDefault)}
	if secret && !v.IsZero() {
		s.Value = Hidden
	}
	return s
}

// plainText returns a value as an operator would write it.
func plainText(v reflect.Value) string {
	switch {
	case v.Type() == durationType:
		return show(v.Interface())
	case v.Type() == jsonType:
		return string(v.Bytes())
	case v.Kind() == reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = plainText(v.Index(i))
		}
		return strings.Join(items, ", ")
	case v.Kind() == reflect.String:
		if u, err := url.Parse(v.String()); err == nil && u.User != nil {
			// It may have a password.
			return u.Scheme + "://" + Hidden + "@" + u.Host + u.RequestURI()
		}
		return v.String()
	case v.Kind() == reflect.Map, v.Kind() == reflect.Pointer:
		return ""
	}
	return fmt.Sprint(v.Interface())
}
