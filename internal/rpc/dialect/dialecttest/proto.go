package dialecttest

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Proto validates ProtoJSON documents against a published proto file. It parses the subset of the
// language that the file uses. It is stricter than a ProtoJSON parser: no unknown members, null
// only as a Value, and all required fields.
type Proto struct {
	messages map[string]map[string]field // by name, by JSON name
	enums    map[string][]string
}

type field struct {
	kind               string
	repeated, required bool
	oneof              string
}

var (
	protoBlock = regexp.MustCompile(`^(message|enum|oneof) (\w+) \{`)
	protoField = regexp.MustCompile(`^(repeated |optional )?([\w.]+|map<string, ?[\w.]+>) (\w+) = \d+(?: \[json_name = "(\w+)"\])?`)
	protoValue = regexp.MustCompile(`^(\w+) = \d+;`)
)

// NewProto reads the proto file of a published version, such as "1.0.1".
func NewProto(t *testing.T, version string) *Proto {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(repository(), "internal/rpc/dialect/testdata/schemas/a2a-v"+version+".proto"))
	require.NoError(t, err)
	p := &Proto{messages: map[string]map[string]field{}, enums: map[string][]string{}}
	var message, enum, oneof string
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if m := protoBlock.FindStringSubmatch(line); m != nil {
			switch m[1] {
			case "message":
				message = m[2]
				p.messages[message] = map[string]field{}
			case "enum":
				enum = m[2]
			case "oneof":
				oneof = m[2]
			}
			continue
		}
		switch {
		case line == "}" && oneof != "":
			oneof = ""
		case line == "}":
			message, enum = "", ""
		case enum != "":
			if m := protoValue.FindStringSubmatch(line); m != nil {
				p.enums[enum] = append(p.enums[enum], m[1])
			}
		case message != "":
			if m := protoField.FindStringSubmatch(line); m != nil {
				p.messages[message][cmp.Or(m[4], jsonName(m[3]))] = field{
					kind: m[2], repeated: m[1] == "repeated ", required: strings.Contains(line, "REQUIRED"), oneof: oneof,
				}
			}
		}
	}
	require.Len(t, p.messages["Task"], 6)
	require.Len(t, p.enums["TaskState"], 9)
	return p
}

func jsonName(name string) string {
	words := strings.Split(name, "_")
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}

// Has reports whether the file has a message.
func (p *Proto) Has(message string) bool { return p.messages[message] != nil }

// Check validates a document against a message, such as "Task".
func (p *Proto) Check(t *testing.T, message string, document []byte) {
	t.Helper()
	require.NoError(t, p.message(message, document), "%s: %s", message, document)
}

func (p *Proto) message(name string, document []byte) error {
	fields, known := p.messages[name]
	if !known {
		return fmt.Errorf("no message %s", name)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(document, &members); err != nil {
		return err
	}
	chosen := map[string]string{}
	for member, value := range members {
		f, known := fields[member]
		if !known {
			return fmt.Errorf("%s has no field %s", name, member)
		}
		if before := chosen[f.oneof]; f.oneof != "" && before != "" {
			return fmt.Errorf("%s has both %s and %s", name, before, member)
		}
		chosen[f.oneof] = member
		if err := p.field(f, value); err != nil {
			return fmt.Errorf("%s: %w", member, err)
		}
	}
	for member, f := range fields {
		if _, there := members[member]; f.required && !there {
			return fmt.Errorf("%s lacks %s", name, member)
		}
		if f.oneof != "" && chosen[f.oneof] == "" {
			return fmt.Errorf("%s has no %s", name, f.oneof)
		}
	}
	return nil
}

func (p *Proto) field(f field, value json.RawMessage) error {
	if of, isMap := strings.CutPrefix(f.kind, "map<string,"); isMap {
		var entries map[string]json.RawMessage
		if err := json.Unmarshal(value, &entries); err != nil {
			return err
		}
		for key, entry := range entries {
			if err := p.value(strings.Trim(of, " >"), entry); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		return nil
	}
	if !f.repeated {
		return p.value(f.kind, value)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(value, &items); err != nil {
		return err
	}
	for _, item := range items {
		if err := p.value(f.kind, item); err != nil {
			return err
		}
	}
	return nil
}

func (p *Proto) value(kind string, value json.RawMessage) error {
	if bytes.Equal(value, []byte("null")) && kind != "google.protobuf.Value" {
		return fmt.Errorf("null is no %s", kind)
	}
	var s string
	switch kind {
	case "google.protobuf.Value":
		return nil
	case "google.protobuf.Struct":
		var members map[string]json.RawMessage
		return json.Unmarshal(value, &members)
	case "bool":
		_, err := strconv.ParseBool(string(value))
		return err
	case "int32":
		_, err := strconv.ParseInt(string(value), 10, 32)
		return err
	case "string", "bytes", "google.protobuf.Timestamp":
		if err := json.Unmarshal(value, &s); err != nil {
			return err
		}
	default:
		values, isEnum := p.enums[kind]
		if !isEnum {
			return p.message(kind, value)
		}
		if err := json.Unmarshal(value, &s); err != nil {
			return err
		}
		if !slices.Contains(values, s) {
			return fmt.Errorf("%s is no %s", s, kind)
		}
	}
	switch kind {
	case "bytes":
		_, err := base64.StdEncoding.DecodeString(s)
		return err
	case "google.protobuf.Timestamp":
		_, err := time.Parse("2006-01-02T15:04:05.000Z", s)
		return err
	}
	return nil
}
