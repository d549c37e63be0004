package binary

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
)

// toJSON renders a message, without the spaces that the library adds at random: codecs keep opaque
// values byte by byte.
func toJSON(m proto.Message) ([]byte, error) {
	b, err := protojson.Marshal(m)
	return rawjson.Compact(b), err
}

var reading = protojson.UnmarshalOptions{DiscardUnknown: true}

// fromJSON converts a document to a message. It omits members without a field in the message.
func fromJSON(document []byte, m proto.Message) ([]byte, error) {
	if err := reading.Unmarshal(document, m); err != nil {
		// On rare occasions opaque JSON contains a number that does not fit a double.
		plain, changed := withinDouble(document)
		if !changed {
			return nil, fmt.Errorf("binary form: %w", err)
		}
		proto.Reset(m)
		if err := reading.Unmarshal(plain, m); err != nil {
			return nil, fmt.Errorf("binary form: %w", err)
		}
	}
	return proto.Marshal(m)
}

// withinDouble replaces numbers that do not fit a double by strings of their digits.
func withinDouble(document []byte) (plain []byte, changed bool) {
	d := jsontext.NewDecoder(bytes.NewReader(document))
	var out bytes.Buffer
	e := jsontext.NewEncoder(&out)
	for {
		v, err := d.ReadToken()
		if err != nil {
			return out.Bytes(), changed
		}
		if v.Kind() == '0' {
			if f, err := strconv.ParseFloat(v.String(), 64); err != nil || math.IsInf(f, 0) {
				v, changed = jsontext.String(v.String()), true
			}
		}
		if e.WriteToken(v) != nil {
			return nil, false
		}
	}
}
