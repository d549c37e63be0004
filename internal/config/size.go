package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as 16MiB, 64KiB, 1GiB, or plain bytes.
type Size int64

// The units of Size. Powers of 1000 are not accepted, so that nobody has to guess.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

var sizeUnits = []struct {
	suffix string
	size   Size
}{{"KiB", KiB}, {"MiB", MiB}, {"GiB", GiB}, {"B", 1}, {"", 1}}

var errSize = errors.New("is not a size; write 16MiB, 64KiB or 4096")

// ParseSize parses the format of String.
func ParseSize(s string) (Size, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
		if err != nil || n > uint64(math.MaxInt64/u.size) {
			return 0, errSize
		}
		return Size(n) * u.size, nil
	}
	return 0, errSize
}

// String uses the largest unit that divides the size.
func (s Size) String() string {
	for _, u := range []struct {
		suffix string
		size   Size
	}{{"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}} {
		if s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
