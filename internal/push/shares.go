package push

import (
	"maps"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/store"
)

// shares decides who may use the deliveries of this process:
//
//   - One host has at most perHost. The others are not delayed if it does not answer.
//   - One caller has at most half. A caller may set webhooks under many names at hosts that hang. Callers without an
//     identity (0) have no such limit.
//   - All silent hosts together have at most half.
//
// Claims count like deliveries: a host or caller with its fair share of claims is busy, and gets no further claim. A
// claim may wait for its host or caller, so that a free slot has its next delivery at once. The dispatcher's lock guards
// shares.
type shares struct {
	concurrency, perHost int

	active  int // deliveries under way
	hosts   map[string]*share
	callers map[int64]*share
	silent  map[string]bool // hosts that did not answer the last time
}

// share is what a host or a caller uses.
type share struct {
	active int // deliveries under way
	claims int // active and waiting claims
}

func (s *share) deliveries() int { return s.active }
func (s *share) all() int        { return s.claims }

// mostSilent bounds the number of remembered silent hosts.
const mostSilent = 1000

func newShares(concurrency, perHost int) shares {
	return shares{
		concurrency: concurrency, perHost: perHost,
		hosts: map[string]*share{}, callers: map[int64]*share{}, silent: map[string]bool{},
	}
}

// half is the limit of one caller, and of all silent hosts together.
func (s *shares) half() int { return (s.concurrency + 1) / 2 }

// free returns the number of free slots.
func (s *shares) free() int { return max(s.concurrency-s.active, 0) }

// busy returns the hosts and callers that get no further claims.
func (s *shares) busy() (hosts []string, callers []int64) {
	for name, h := range s.hosts {
		if h.claims >= s.perHost {
			hosts = append(hosts, name)
		}
	}
	if s.ofSilent().claims >= s.half() {
		hosts = slices.AppendSeq(hosts, maps.Keys(s.silent))
	}
	for caller, c := range s.callers {
		if caller != 0 && c.claims >= s.half() {
			callers = append(callers, caller)
		}
	}
	return hosts, callers
}

// busyWith returns the hosts and callers that get no further claims once these are counted, too.
func (s *shares) busyWith(won []*store.PushDue) (hosts []string, callers []int64) {
	count := func(claims int) {
		for _, d := range won {
			add(s.hosts, d.Config.Host, 0, claims)
			add(s.callers, d.Caller, 0, claims)
		}
	}
	count(1)
	defer count(-1)
	return s.busy()
}

// fits reports whether a claim that has joined may start.
func (s *shares) fits(c *claim) bool { return s.free() > 0 && s.within(c, (*share).deliveries) }

// crowded reports whether the host or the caller of a claim that has joined is busy.
func (s *shares) crowded(c *claim) bool { return !s.within(c, (*share).all) }

func (s *shares) within(c *claim, used func(*share) int) bool {
	return used(s.hosts[c.Config.Host]) < s.perHost &&
		(c.Caller == 0 || used(s.callers[c.Caller]) < s.half()) &&
		(!s.silent[c.Config.Host] || used(s.ofSilent()) < s.half())
}

// ofSilent returns what all silent hosts use together.
func (s *shares) ofSilent() *share {
	sum := new(share)
	for name, h := range s.hosts {
		if s.silent[name] {
			sum.active += h.active
			sum.claims += h.claims
		}
	}
	return sum
}

// join counts a new claim.
func (s *shares) join(c *claim) {
	add(s.hosts, c.Config.Host, 0, 1)
	add(s.callers, c.Caller, 0, 1)
}

// start gives a claim a slot.
func (s *shares) start(c *claim) {
	s.active++
	add(s.hosts, c.Config.Host, 1, 0)
	add(s.callers, c.Caller, 1, 0)
}

// leave ends a claim that had a slot.
func (s *shares) leave(c *claim) {
	s.active--
	add(s.hosts, c.Config.Host, -1, -1)
	add(s.callers, c.Caller, -1, -1)
}

func add[K comparable](of map[K]*share, key K, active, claims int) {
	s := of[key]
	if s == nil {
		s = new(share)
		of[key] = s
	}
	s.active += active
	if s.claims += claims; s.claims == 0 {
		delete(of, key)
	}
}

// noteAnswer remembers whether a host answers. It reports whether a busy host is free again.
func (s *shares) noteAnswer(host string, answers bool) (freed bool) {
	switch {
	case answers:
		freed = s.silent[host] && s.ofSilent().claims >= s.half()
		delete(s.silent, host)
		return freed
	case !s.silent[host] && len(s.silent) >= mostSilent:
		// Make room: drop a host without claims, which may have been given up long ago.
		for other := range s.silent {
			if s.hosts[other] == nil {
				delete(s.silent, other)
				break
			}
		}
	}
	if len(s.silent) < mostSilent {
		s.silent[host] = true
	}
	return false
}
