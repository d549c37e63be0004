package curvetest_test

import (
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math"
	mathrand "math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/curvetest"
)

var memory = &curvetest.Chart{Name: "memory", Unit: curvetest.Bytes, Part: 0.05, Most: 1 << 20}

// curve has a sample for each second.
func curve(chart *curvetest.Chart, n int, value func(i int) float64) *curvetest.Curve {
	c := &curvetest.Curve{Chart: chart, Name: "a"}
	for i := range n {
		c.Points = append(c.Points, curvetest.Point{At: time.Duration(i) * time.Second, Value: value(i)})
	}
	return c
}

func TestJudge(t *testing.T) {
	t.Parallel()
	const n, mib = 240, 1 << 20
	rng := mathrand.New(mathrand.NewPCG(1, 2))
	noise := make([]float64, n)
	for i := range noise {
		noise[i] = rng.NormFloat64()
	}
	part := func(i int) float64 { return float64(i) / n }
	for name, c := range map[string]struct {
		value func(i int) float64
		grows bool
	}{
		"constant":                         {func(int) float64 { return 50 * mib }, false},
		"noise":                            {func(i int) float64 { return (50 + 10*noise[i]) * mib }, false},
		"a warm-up":                        {func(i int) float64 { return 50 * mib * math.Min(1, 4*part(i)) }, false},
		"a wave":                           {func(i int) float64 { return (50 + 20*math.Sin(part(i)*40)) * mib }, false},
		"a saw of collections":             {func(i int) float64 { return (30 + float64(i%13)) * mib }, false},
		"peaks late":                       {func(i int) float64 { return mib * (50 + 400*math.Floor(part(i)*1.1)*float64(1-min(1, i%3))) }, false},
		"less":                             {func(i int) float64 { return (90 - 40*part(i)) * mib }, false},
		"a leak":                           {func(i int) float64 { return (50 + 30*part(i)) * mib }, true},
		"a leak in noise":                  {func(i int) float64 { return (50 + 40*part(i) + 5*noise[i]) * mib }, true},
		"a leak in a saw":                  {func(i int) float64 { return (30 + 30*part(i) + float64(i%13)) * mib }, true},
		"a step":                           {func(i int) float64 { return (50 + 30*math.Floor(1.4*part(i))) * mib }, true},
		"a leak below what the part hides": {func(i int) float64 { return (50 + 6*part(i)) * mib }, false},
		"a large part of little":           {func(i int) float64 { return mib * part(i) }, false},
		"with gaps": {func(i int) float64 {
			if i%20 == 0 {
				return math.NaN()
			}
			return 50 * mib
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := curve(memory, n, c.value).Judge()
			require.False(t, v.Few)
			require.Equal(t, c.grows, v.Grows, "%+v", v)
		})
	}
	require.True(t, curve(memory, 5, func(int) float64 { return 1 }).Judge().Few)
}

func TestBook(t *testing.T) {
	t.Parallel()
	b := &curvetest.Book{}
	threads := &curvetest.Chart{Name: "goroutines <at rest>", Unit: curvetest.Count, Part: 0.1, Most: 3}
	for i := range 60 {
		at := time.Duration(i) * time.Second
		b.Add(memory, "a", "", at, 40<<20)
		b.Add(memory, "b", "it is killed", at, float64(i<<20))
		b.Add(threads, "a", "", at, float64(100+i))
	}
	b.Add(memory, "b", "it is killed", time.Minute, math.NaN())
	b.Add(memory, "b", "it is killed", 61*time.Second, 1<<20)
	b.Add(threads, "c", "", 0, 1)
	err := b.Grown()
	require.ErrorContains(t, err, "goroutines <at rest> of a grows: from 129.5 to 149.5")
	require.ErrorContains(t, err, "goroutines <at rest> of c: 1 samples are too few")
	require.NotContains(t, err.Error(), "memory")
	table := b.Table()
	require.Contains(t, table, "| memory | a | 60 | 40 MiB | 40 MiB | 40 MiB | 0.00 | flat |")
	require.Contains(t, table, "not judged: it is killed")
	require.Contains(t, table, "| goroutines <at rest> | a | 60 | 109.5 | 129.5 | 149.5 | 1.00 | **grows** |")

	var file strings.Builder
	require.NoError(t, b.CSV(&file))
	rows, err := csv.NewReader(strings.NewReader(file.String())).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+60+62+60+1)
	require.Equal(t, []string{"59.0", "goroutines <at rest>", "a", "count", "159"}, rows[1+60+62+59])
	require.Equal(t, []string{"60.0", "memory", "b", "bytes", ""}, rows[1+60+60], "a gap")

	picture := b.Picture("Two & three")
	texts, lines := "", 0
	for in := xml.NewDecoder(strings.NewReader(picture)); ; {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch x := token.(type) {
		case xml.CharData:
			texts += string(x)
		case xml.StartElement:
			for _, a := range x.Attr {
				if a.Name.Local == "d" && strings.Contains(a.Value, "L") {
					lines++
					require.NotContains(t, a.Value, "NaN")
				}
			}
		}
	}
	require.Equal(t, 3, lines, "curves with more than a point")
	for _, text := range []string{"Two & three", "goroutines <at rest>", "memory", "60 MiB"} {
		require.Contains(t, texts, text)
	}
}
