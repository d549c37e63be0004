package partition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func at(t *testing.T, s string) time.Time {
	t.Helper()
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime} {
		if v, err := time.Parse(layout, s); err == nil {
			return v
		}
	}
	t.Fatalf("no time: %s", s)
	return time.Time{}
}

func TestPeriods(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		w              Width
		at, from, upto string
	}{
		{Month, "2026-02-28 23:59", "2026-02-01", "2026-03-01"},
		{Month, "2026-12-01", "2026-12-01", "2027-01-01"},
		{Day, "2026-03-01", "2026-03-01", "2026-03-02"},
		{7 * Day, "2026-11-22 12:00", "2026-11-19", "2026-11-26"},
		{7 * Day, "1969-12-30", "1969-12-25", "1970-01-01"},
		{Width(6 * time.Hour), "2026-03-01 13:00", "2026-03-01 12:00", "2026-03-01 18:00"},
		{Width(15 * time.Second), "2026-03-01 13:00:31", "2026-03-01 13:00:30", "2026-03-01 13:00:45"},
	} {
		east := at(t, c.at).In(time.FixedZone("", 5*3600+45*60))
		require.Equal(t, at(t, c.from), c.w.Floor(east), c)
		require.Equal(t, at(t, c.upto), c.w.Next(east), c)
	}
}

func TestRetention(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for keep, want := range map[time.Duration]Width{
		0: Month, 400 * day: Month, 120*day + 1: Month, 120 * day: 7 * Day, 28 * day: 7 * Day, 28*day - 1: Day, 4 * day: Day,
		day: Width(6 * time.Hour), 23 * time.Hour: Width(time.Hour), 2 * time.Minute: Width(15 * time.Second), time.Second: Width(15 * time.Second),
	} {
		require.Equal(t, want, For(keep), keep)
		require.Positive(t, For(keep).Ahead())
	}
}

func TestGaps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		there    []string // from and to, in turn
		w        Width
		from, to string
		want     []string
	}{
		"nothing is there":            {nil, Month, "2026-01-15", "2026-02-15", []string{"2026-01-01", "2026-02-01", "2026-02-01", "2026-03-01"}},
		"an end is not part":          {nil, Month, "2026-01-15", "2026-02-01", []string{"2026-01-01", "2026-02-01"}},
		"an empty span":               {nil, Month, "2026-01-15", "2026-01-15", nil},
		"all is there":                {[]string{"2026-01-01", "2026-02-01"}, Month, "2026-01-15", "2026-01-31", nil},
		"the next one is missing":     {[]string{"2026-01-01", "2026-02-01"}, Month, "2026-01-15", "2026-02-02", []string{"2026-02-01", "2026-03-01"}},
		"the one before is missing":   {[]string{"2026-02-01", "2026-03-01"}, Month, "2026-01-31", "2026-02-02", []string{"2026-01-01", "2026-02-01"}},
		"one between is missing":      {[]string{"2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01"}, Month, "2026-01-15", "2026-03-15", []string{"2026-02-01", "2026-03-01"}},
		"narrower: behind the month":  {[]string{"2026-01-01", "2026-02-01"}, Day, "2026-01-31", "2026-02-03", []string{"2026-02-01", "2026-02-02", "2026-02-02", "2026-02-03"}},
		"a week is cut by a month":    {[]string{"2026-01-01", "2026-02-01"}, 7 * Day, "2026-01-31", "2026-02-06", []string{"2026-02-01", "2026-02-05", "2026-02-05", "2026-02-12"}},
		"wider: the rest of a month":  {[]string{"2026-01-01", "2026-01-08"}, Month, "2026-01-05", "2026-01-20", []string{"2026-01-08", "2026-02-01"}},
		"wider: before existing ones": {[]string{"2026-01-20", "2026-01-21"}, Month, "2026-01-05", "2026-01-25", []string{"2026-01-01", "2026-01-20", "2026-01-21", "2026-02-01"}},
		"wider: both sides are cut":   {[]string{"2026-01-02", "2026-01-03", "2026-01-20", "2026-01-21"}, Month, "2026-01-10", "2026-01-11", []string{"2026-01-03", "2026-01-20"}},
	} {
		var there []Partition
		for i := 0; i < len(c.there); i += 2 {
			there = append(there, Partition{From: at(t, c.there[i]), To: at(t, c.there[i+1])})
		}
		var want []period
		for i := 0; i < len(c.want); i += 2 {
			want = append(want, period{at(t, c.want[i]), at(t, c.want[i+1])})
		}
		require.Equal(t, want, gaps(there, c.w, at(t, c.from), at(t, c.to)), name)
	}
}

func TestBoundsRoundTrip(t *testing.T) {
	t.Parallel()
	for _, f := range Families {
		moment := at(t, "2026-03-01")
		read, err := f.parse(f.bound(moment))
		require.NoError(t, err)
		require.Equal(t, moment, read.UTC(), f.Name)
	}
	require.Equal(t, "20260301", stamp(at(t, "2026-03-01")))
	require.Equal(t, "20260301_1315", stamp(at(t, "2026-03-01 13:15")))
	require.Equal(t, "20260301_131515", stamp(at(t, "2026-03-01 13:15:15")))
}
