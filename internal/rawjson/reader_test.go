package rawjson_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestReaderKeepsFirstError(t *testing.T) {
	t.Parallel()
	r := rawjson.NewReader([]byte(`{"a":[{"b":1},{"b":"x"}],"c":true}`))
	defer r.Close()
	names := 0
	for r.Object(); r.Next(); {
		names++
		for r.Array(); r.Item(); {
			for r.Object(); r.Next(); {
				require.Empty(t, r.String())
			}
		}
	}
	r.Fail("a later fault")
	require.Equal(t, 1, names)
	require.Zero(t, r.Count())
	require.Nil(t, r.Raw())
	require.False(t, r.Bool())
	require.False(t, r.Item())
	var fault *task.Error
	require.ErrorAs(t, r.Err(), &fault)
	require.Equal(t, "a[0].b", fault.Field)
	require.Equal(t, "a[0].b: must be a string", fault.Msg)
}

func TestNamesAreReadUnescaped(t *testing.T) {
	t.Parallel()
	r := rawjson.NewReader([]byte(`{"\u0069d":"x"}`))
	defer r.Close()
	r.Object()
	require.True(t, r.Next())
	require.Equal(t, "id", string(r.Name()))
	require.Equal(t, "x", r.String())
	require.False(t, r.Next())
	require.NoError(t, r.Err())
}

func TestMembersOfOpaqueObjects(t *testing.T) {
	t.Parallel()
	object := []byte(`{"z":1.0,"\u0061":null,"b":{"z":2}}`)
	value, ok := rawjson.Lookup(object, "a")
	require.True(t, ok)
	require.Equal(t, "null", string(value))
	_, ok = rawjson.Lookup(object, "c")
	require.False(t, ok)
	_, ok = rawjson.Lookup(nil, "c")
	require.False(t, ok)
	//nolint:testifylint // byte by byte is the point
	require.Equal(t, `{"\u0061":null,"b":{"z":2}}`, string(rawjson.Without(object, "z")))
	require.Equal(t, string(object), string(rawjson.Without(object, "c")))
	require.Nil(t, rawjson.Without([]byte(`{"z":1}`), "z"))
	require.Equal(t, `{"z":true}`, string(rawjson.With(nil, "z", []byte("true"))))
	require.Equal(t, `{"z":true}`, string(rawjson.With([]byte("{ }"), "z", []byte("true"))))
	require.Equal(t, `{"a":1,"z":true}`, string(rawjson.With([]byte("{\n\"a\": 1\n}"), "z", []byte("true"))))
}

func TestAppend(t *testing.T) {
	t.Parallel()
	require.Equal(t, `"<&> \"\n\u0000`+"\ufffd\u2028\"", string(rawjson.AppendString(nil, "<&> \"\n\x00\xff\u2028")))
	at := time.Date(2026, 1, 1, 0, 30, 0, 999_999_000, time.FixedZone("", 3600))
	require.Equal(t, `"2025-12-31T23:30:00.999Z"`, string(rawjson.AppendTime(nil, at)))
	require.Equal(t, `[1,2]`, string(rawjson.AppendRaw(nil, []byte("[1,\r\n2]"))))
	require.Empty(t, rawjson.AppendRawMember(nil, "a", nil))
	require.Empty(t, rawjson.AppendStringsMember(nil, "a", nil))
	require.Equal(t, `,"a":["x","y"]`, string(rawjson.AppendStringsMember(nil, "a", []string{"x", "y"})))
	require.Equal(t, `[]`, string(rawjson.AppendArray(nil, []string(nil), nil)))
}

func TestTruncatedJSON(t *testing.T) {
	t.Parallel()
	for _, cut := range []string{`{"a":t`, `{"a":tru`, `{"a":fals`} {
		r := rawjson.NewReader([]byte(cut))
		for r.Object(); r.Next(); {
			require.False(t, r.Bool())
		}
		require.ErrorIs(t, r.Err(), task.Invalid, cut)
		r.Close()
	}
}

// Code that copies all earlier bytes for each member would copy 60 GB here.
func TestWithoutTakesLinearTime(t *testing.T) {
	t.Parallel()
	object := []byte(`{"gone":1`)
	for i := range 100_000 {
		object = strconv.AppendInt(append(object, `,"m`...), int64(i), 10)
		object = append(object, `":1`...)
	}
	object = append(object, '}')
	require.Len(t, rawjson.Without(object, "gone"), len(object)-len(`"gone":1,`))
}
