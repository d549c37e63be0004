package rawjson_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
)

func TestCheckRefusals(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65)
	tests := []struct {
		name, body string
		syntax     bool
		want       string
	}{
		{"an empty body", "", true, "empty body"},
		{"white space only", " \n", true, "empty body"},
		{"a truncated body", `{"params":{"a":1`, true, "params: the body ends too early, at byte 16"},
		{"a word", `hello`, true, "invalid character 'h' at start of value at byte 0"},
		{"a second value", `{} {}`, true, "more than one JSON value"},
		{"rubbish after the value", `{}x`, true, "invalid character 'x' at start of value at byte 2"},
		{"a trailing comma", `{"params":{"a":[1,]}}`, true, "params.a: invalid character ',' at start of value at byte 17"},
		{"a comment", "{\n// hello\n}", true, "invalid character '/' at start of value at byte 2"},
		{"bad UTF-8", "{\"params\":{\"a\":\"\xff\"}}", true, "params.a: invalid UTF-8 at byte 16"},
		{"half a surrogate pair", `{"params":"\ud800"}`, true, "params: invalid surrogate pair `\\ud800\"}` in string at byte 11"},
		{"a raw control character", "{\"params\":\"a\nb\"}", true, "params: invalid character '\\n' in string (expecting non-control character) at byte 12"},
		{"a duplicate name", `{"params":{"message":{"role":1,"parts":[],"role":2}}}`, false, "params.message.role: the member appears twice"},
		{"a duplicate name in disguise", `{"params":[{"a":1},{"a":1,"\u0061":2}]}`, false, "params[1].a: the member appears twice"},
		{"a NUL in a string", `{"params":{"message":{"parts":[{"text":"a\u0000b"}]}}}`, false, `params.message.parts[0].text: NUL characters (\u0000) are not accepted`},
		{"a NUL in a name", `{"params":{"a\u0000":1}}`, false, `params["a\x00"]: NUL characters (\u0000) are not accepted`},
		{"a NUL after an escaped backslash", `{"a":"\\\u0000"}`, false, `a: NUL characters (\u0000) are not accepted`},
		{"deep nesting", deep, false, strings.TrimSuffix(strings.Repeat("a.", 32), ".") + ": objects and arrays are nested more than 32 deep"},
	}
	for _, tt := range tests {
		err := rawjson.Check([]byte(tt.body), rawjson.MaxDepth)
		var fault *rawjson.Error
		require.ErrorAs(t, err, &fault, tt.name)
		require.Equal(t, tt.want, fault.Error(), tt.name)
		require.Equal(t, tt.syntax, fault.Syntax, tt.name)
	}
}

func TestCheckAccepts(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{}`, `[]`, `1`, ` null `, `"x"`, `{"a":1e400,"b":12345678901234567890123}`,
		`{"a":"\\u0000 is six characters"}`, `{"a":"\\\\u0000"}`, `{"":1," ":2}`,
		strings.Repeat("[", 32) + strings.Repeat("]", 32),
	} {
		require.NoError(t, rawjson.Check([]byte(body), rawjson.MaxDepth), body)
	}
}

func TestCheckCutsLongNamesInPaths(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("é", 100)
	err := rawjson.Check([]byte(`{"`+name+`":"\u0000"}`), rawjson.MaxDepth)
	require.EqualError(t, err, strings.Repeat("é", 32)+`…: NUL characters (\u0000) are not accepted`)
}

func TestInParams(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"params": true, "params.id": true, "params[0]": true, `params["a b"]`: true,
		"": false, "id": false, "paramset": false, "x.params": false,
	} {
		require.Equal(t, want, (&rawjson.Error{Path: path}).InParams(), path)
	}
}

func TestCompactRemovesOnlyWhiteSpace(t *testing.T) {
	t.Parallel()
	in := " {\r\n\t\"b\" : [ 1.0 , 1e400 ,\n12345678901234567890123 ] , \"a \\\" \\\\\" : \"x\\u00e9 \\/ y\" , \"<&>\" : null } "
	//nolint:testifylint // byte by byte is the point
	require.Equal(t, `{"b":[1.0,1e400,12345678901234567890123],"a \" \\":"x\u00e9 \/ y","<&>":null}`,
		string(rawjson.Compact([]byte(in))))
}

func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"t"}}`, `{"a":{"a":1},"a":2}`,
		`"\u0000"`, `"\\u0000"`, `[[[[1]]]]`, `{"a":"\ud83d\ude00"}`, "[1,\n2]", `{"a`, "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := rawjson.Check(body, 8)
		if err != nil {
			var fault *rawjson.Error
			require.ErrorAs(t, err, &fault)
			if fault.Syntax && json.Valid(body) { // encoding/json accepts any bytes and any escape
				require.True(t, !utf8.Valid(body) || bytes.Contains(bytes.ToLower(body), []byte(`\ud`)), "%v", err)
			}
			return
		}
		require.True(t, json.Valid(body))
		var want bytes.Buffer
		require.NoError(t, json.Compact(&want, body))
		got := rawjson.Compact(body)
		require.Equal(t, want.String(), string(got))
		require.Equal(t, string(got), string(rawjson.Compact(got)))
		require.NotContains(t, string(got), "\n")
	})
}
