// The ledger of a flow: messages that publishers sent, and those that each receiver must get. It finds lost, repeated and
// stray ones, and those out of order. All VUs of the process write to it, so a mutex guards it.

package mqtt

import (
	"math/rand/v2"
	"sync"
	"time"
)

// The most messages one publisher of a flow may send: a sequence number beyond would take memory
// for bits that no message has.
const sequenceMax = 1 << 28

// flows are all flows of the process.
type flows struct {
	run    uint32
	mu     sync.Mutex
	byName map[string]*ledger
}

func newFlows() *flows { return &flows{run: rand.Uint32(), byName: make(map[string]*ledger)} }

func (f *flows) named(name string) *ledger {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, ok := f.byName[name]
	if !ok {
		found = &ledger{
			run: f.run, name: name, id: uint32(len(f.byName)), audiences: make(map[string]*audience),
			byName: make(map[string]*publisher), quietSince: time.Now(),
		}
		f.byName[name] = found
	}
	return found
}

// ledger knows what the publishers of a flow sent and what each audience received. It knows no
// sockets and no metrics.
type ledger struct {
	name    string
	run, id uint32

	mu         sync.Mutex
	publishers []*publisher
	byName     map[string]*publisher
	audiences  map[string]*audience
	arrivals   int
	latency    histogram
	quietSince time.Time
}

// publisher is one source of a flow. Sequence numbers continue when its client reconnects.
type publisher struct {
	id   uint32
	name string
	next uint64
	// The messages that must arrive: the written ones with QoS 0, the acknowledged ones otherwise.
	required bitset
	finished bool
	// While the publisher waits for its receivers: how many of them have fewer than wakeAt messages.
	wake    chan struct{}
	wakeAt  uint64
	lagging int
}

// audience is all those who together must receive each message once: one receiver, or the members of
// a shared subscription.
type audience struct {
	// Names of the publishers whose messages it gets; empty means all.
	from       map[string]bool
	seen       map[uint32]*bitset
	received   map[uint32]uint64
	repeated   uint64
	outOfOrder uint64
	// Messages that arrived although their publisher is not in `from`.
	stray uint64
}

// reception is one member of an audience.
type reception struct {
	ledger   *ledger
	audience *audience
	// The latest sequence number from each publisher that this member saw first.
	latest map[uint32]uint64
}

// verdict sums a flow up.
type verdict struct {
	Sent       uint64 `js:"sent"`
	Expected   uint64 `js:"expected"`
	Received   uint64 `js:"received"`
	Lost       uint64 `js:"lost"`
	Repeated   uint64 `js:"repeated"`
	OutOfOrder uint64 `js:"outOfOrder"`
	Stray      uint64 `js:"stray"`
	// Milliseconds from publish to first receipt.
	P50 float64 `js:"p50"`
	P99 float64 `js:"p99"`
}

func (l *ledger) publisher(name string) *publisher {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.byName[name]
	if !ok {
		p = &publisher{id: uint32(len(l.publishers)), name: name}
		l.publishers = append(l.publishers, p)
		l.byName[name] = p
	}
	p.finished = false
	return p
}

// join adds a member to an audience. A client that comes back to its session joins again.
func (l *ledger) join(name string, from []string) *reception {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.audiences[name]
	if !ok {
		a = &audience{from: make(map[string]bool), seen: make(map[uint32]*bitset), received: make(map[uint32]uint64)}
		l.audiences[name] = a
	}
	for _, publisher := range from {
		a.from[publisher] = true
	}
	return &reception{ledger: l, audience: a, latest: make(map[uint32]uint64)}
}

// begin takes the next sequence number.
func (l *ledger) begin(p *publisher) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.next++
	return p.next - 1
}

// require says that a message must arrive.
func (l *ledger) require(p *publisher, sequence uint64) {
	l.mu.Lock()
	p.required.add(sequence)
	l.mu.Unlock()
}

func (l *ledger) finish(p *publisher) {
	l.mu.Lock()
	p.finished = true
	l.mu.Unlock()
}

// deliver notes a message and says whether it is one of the flow's.
func (r *reception) deliver(s stamp, now time.Time) bool {
	l := r.ledger
	if s.run != l.run || s.flow != l.id {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quietSince = now
	if int(s.publisher) >= len(l.publishers) {
		r.audience.stray++
		return true
	}
	// A number that was never sent would also take memory for all bits below it.
	if p := l.publishers[s.publisher]; !r.audience.hears(p) || s.sequence >= p.next {
		r.audience.stray++
	} else {
		r.note(p, s.sequence, now.Sub(s.sent))
	}
	return true
}

// note keeps the books of one message. The mutex is held.
func (r *reception) note(p *publisher, sequence uint64, took time.Duration) {
	a := r.audience
	seen, ok := a.seen[p.id]
	if !ok {
		seen = &bitset{}
		a.seen[p.id] = seen
	}
	if !seen.add(sequence) {
		a.repeated++
		return
	}
	a.received[p.id]++
	r.ledger.latency.add(took)
	if latest, ok := r.latest[p.id]; ok && sequence < latest {
		a.outOfOrder++
	} else {
		r.latest[p.id] = sequence
	}
	if p.wake != nil && a.received[p.id] == p.wakeAt {
		p.lagging--
		if p.lagging == 0 {
			close(p.wake)
			p.wake = nil
		}
	}
}

func (a *audience) hears(p *publisher) bool { return len(a.from) == 0 || a.from[p.name] }

// follow returns a channel that is closed once fewer than ahead messages of the publisher are on
// their way to the slowest audience, or nil when that is so now. A second call for a publisher that
// waits leaves the first channel open for ever.
func (l *ledger) follow(p *publisher, ahead uint64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.next < ahead {
		return nil
	}
	p.wakeAt, p.lagging = p.next-ahead+1, 0
	for _, a := range l.audiences {
		if a.hears(p) && a.received[p.id] < p.wakeAt {
			p.lagging++
		}
	}
	if p.lagging == 0 {
		return nil
	}
	p.wake = make(chan struct{})
	return p.wake
}

// arrive counts receivers that have subscribed.
func (l *ledger) arrive(n int) {
	l.mu.Lock()
	l.arrivals += n
	l.mu.Unlock()
}

func (l *ledger) arrived() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrivals
}

// complete says whether this number of publishers has finished, and either nothing is missing or nothing
// has arrived for the given time.
func (l *ledger) complete(publishers int, quiet time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	finished := 0
	for _, p := range l.publishers {
		if p.finished {
			finished++
		}
	}
	if finished < publishers {
		l.quietSince = time.Now()
		return false
	}
	return l.sum().Lost == 0 || time.Since(l.quietSince) > quiet
}

func (l *ledger) verdict() verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum()
}

// sum judges what has arrived until now. The mutex is held.
func (l *ledger) sum() verdict {
	v := verdict{P50: l.latency.quantile(0.5), P99: l.latency.quantile(0.99)}
	for _, p := range l.publishers {
		v.Sent += p.next
	}
	for _, a := range l.audiences {
		v.Repeated += a.repeated
		v.OutOfOrder += a.outOfOrder
		v.Stray += a.stray
		for _, p := range l.publishersOf(a) {
			seen, ok := a.seen[p.id]
			if !ok {
				seen = &bitset{}
			}
			v.Expected += p.required.count()
			v.Received += seen.count()
			v.Lost += p.required.missing(seen)
		}
	}
	return v
}

func (l *ledger) publishersOf(a *audience) []*publisher {
	if len(a.from) == 0 {
		return l.publishers
	}
	var found []*publisher
	for name := range a.from {
		if p, ok := l.byName[name]; ok {
			found = append(found, p)
		}
	}
	return found
}
