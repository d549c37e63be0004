package push

import (
	"sync"
	"time"

	"github.com/jellydator/ttlcache/v3"
	"golang.org/x/time/rate"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// pace bounds the attempts of each webhook in an hour, so that an agent with many events does not flood the receiver. A nil
// pace allows everything. Its methods are safe for concurrent use.
type pace struct {
	perHour int
	mu      sync.Mutex
	of      *ttlcache.Cache[webhookID, *rate.Limiter]
}

type webhookID struct {
	task   task.ID
	config string
}

const (
	// paced is how many webhooks are remembered. The least recently used one starts again with a full burst.
	paced = 50_000
	// A quarter of the attempts of an hour may follow each other at once, within these bounds.
	burstShare = 4
	leastBurst = 10
	mostBurst  = 250
)

func newPace(perHour int) *pace {
	if perHour == 0 {
		return nil
	}
	return &pace{perHour: perHour, of: ttlcache.New(
		ttlcache.WithCapacity[webhookID, *rate.Limiter](paced), ttlcache.WithTTL[webhookID, *rate.Limiter](time.Hour),
	)}
}

func (p *pace) limiter(c *claim) *rate.Limiter {
	key := webhookID{c.Task, c.Config.ID}
	p.mu.Lock()
	defer p.mu.Unlock()
	if item := p.of.Get(key); item != nil {
		return item.Value()
	}
	p.of.DeleteExpired()
	l := rate.NewLimiter(rate.Limit(float64(p.perHour)/time.Hour.Seconds()), min(max(p.perHour/burstShare, leastBurst), mostBurst))
	p.of.Set(key, l, ttlcache.DefaultTTL)
	return l
}

// ready returns how long a webhook has to wait for its next attempt, and whether it is at its limit: then its events are
// coalesced.
func (p *pace) ready(c *claim) (wait time.Duration, limited bool) {
	if p == nil {
		return 0, false
	}
	tokens := p.limiter(c).Tokens()
	if tokens >= 1 {
		return 0, tokens < 2
	}
	return time.Duration((1 - tokens) / float64(p.perHour) * float64(time.Hour)), true
}

// take counts an attempt.
func (p *pace) take(c *claim) {
	if p != nil {
		p.limiter(c).Allow()
	}
}
