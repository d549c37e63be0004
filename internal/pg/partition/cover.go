package partition

import (
	"context"
	"time"
)

// Coverage says which times the partitions of a family cover.
type Coverage struct {
	Begin time.Time // of the oldest partition; zero: no partition exists
	// End is up to when each table of the family has partitions, from now on without a gap; now if one has none.
	End time.Time
	// Attached, Detaching (interrupted) and Detached (not dropped yet) count partitions.
	Attached, Detaching, Detached int
}

// Cover returns the coverage of a family.
func Cover(ctx context.Context, db DB, f Family, now time.Time) (Coverage, error) {
	all, err := List(ctx, db, f)
	if err != nil {
		return Coverage{}, err
	}
	c := Coverage{}
	ends := map[string]time.Time{} // by table
	for _, t := range f.tables {
		ends[t.name] = now
	}
	for _, p := range all {
		if p.Detaching {
			c.Detaching++
			continue
		}
		c.Attached++
		if c.Begin.IsZero() {
			c.Begin = p.From // the list begins with the oldest
		}
		if end := ends[p.Parent]; !p.From.After(end) && p.To.After(end) {
			ends[p.Parent] = p.To
		}
	}
	for _, end := range ends {
		if c.End.IsZero() || end.Before(c.End) {
			c.End = end
		}
	}
	names, err := Detached(ctx, db, f)
	c.Detached = len(names)
	return c, err
}
