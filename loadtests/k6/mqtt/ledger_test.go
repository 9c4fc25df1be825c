package mqtt

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// delivery is a message as a member of an audience gets it.
type delivery struct {
	member    int
	publisher string
	sequence  uint64
}

func TestALedgerCountsWhatIsLostRepeatedAndOutOfOrder(t *testing.T) {
	t.Parallel()
	each := []string{"x", "y"}
	for name, test := range map[string]struct {
		// The audience of each member: members of one audience share its messages.
		audiences []string
		// The publishers whose messages the members expect; nil means all.
		from       []string
		sent       int
		deliveries []delivery
		want       verdict
	}{
		"all arrive":       {each[:1], nil, 2, []delivery{{0, "a", 0}, {0, "a", 1}}, verdict{Sent: 2, Expected: 2, Received: 2}},
		"one is lost":      {each[:1], nil, 2, []delivery{{0, "a", 1}}, verdict{Sent: 2, Expected: 2, Received: 1, Lost: 1}},
		"nobody receives":  {each[:1], nil, 2, nil, verdict{Sent: 2, Expected: 2, Lost: 2}},
		"one comes again":  {each[:1], nil, 1, []delivery{{0, "a", 0}, {0, "a", 0}}, verdict{Sent: 1, Expected: 1, Received: 1, Repeated: 1}},
		"two change order": {each[:1], nil, 2, []delivery{{0, "a", 1}, {0, "a", 0}}, verdict{Sent: 2, Expected: 2, Received: 2, OutOfOrder: 1}},
		"one of two audiences misses it": {each, nil, 1, []delivery{{0, "a", 0}},
			verdict{Sent: 1, Expected: 2, Received: 1, Lost: 1}},
		"two members of one audience share": {[]string{"g", "g"}, nil, 2, []delivery{{1, "a", 1}, {0, "a", 0}},
			verdict{Sent: 2, Expected: 2, Received: 2}},
		"both members of one audience get it": {[]string{"g", "g"}, nil, 1, []delivery{{1, "a", 0}, {0, "a", 0}},
			verdict{Sent: 1, Expected: 1, Received: 1, Repeated: 1}},
		"a message of another publisher": {each[:1], []string{"b"}, 1, []delivery{{0, "a", 0}}, verdict{Sent: 1, Stray: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newFlows().named("flow")
			members := make([]*reception, 0, len(test.audiences))
			for _, audience := range test.audiences {
				members = append(members, l.join(audience, test.from))
			}
			p := l.publisher("a")
			for range test.sent {
				l.require(p, l.begin(p))
			}
			for _, d := range test.deliveries {
				s := stamp{run: l.run, flow: l.id, publisher: l.byName[d.publisher].id, sequence: d.sequence, sent: time.Unix(0, 0)}
				require.True(t, members[d.member].deliver(s, time.Unix(0, 0)))
			}
			got := l.verdict()
			got.P50, got.P99 = 0, 0
			require.Equal(t, test.want, got)
		})
	}
}

func TestMessagesThatWereRefusedAreNotMissed(t *testing.T) {
	t.Parallel()
	l := newFlows().named("flow")
	l.join("x", nil)
	p := l.publisher("a")
	l.begin(p)
	l.finish(p)
	require.True(t, l.complete(1, time.Hour))
	require.Equal(t, verdict{Sent: 1}, l.verdict())
}

func TestAFlowIsCompleteWhenNothingIsMissingOrNothingComesAnyMore(t *testing.T) {
	t.Parallel()
	l := newFlows().named("flow")
	l.join("x", nil)
	p := l.publisher("a")
	l.require(p, l.begin(p))
	require.False(t, l.complete(1, 0), "the publisher has not finished")
	l.finish(p)
	require.False(t, l.complete(1, time.Hour), "a message is on its way")
	require.True(t, l.complete(1, 0), "it will not come any more")
	require.False(t, l.complete(2, 0), "another publisher has not even begun")
}

func TestMessagesOfAnotherRunAreNoneOfAFlow(t *testing.T) {
	t.Parallel()
	l := newFlows().named("flow")
	p := l.publisher("a")
	member := l.join("x", nil)
	for name, s := range map[string]stamp{
		"another run":  {run: l.run + 1, flow: l.id, publisher: p.id},
		"another flow": {run: l.run, flow: l.id + 1, publisher: p.id},
	} {
		require.False(t, member.deliver(s, time.Now()), name)
	}
	require.True(t, member.deliver(stamp{run: l.run, flow: l.id, publisher: 99}, time.Now()))
	require.True(t, member.deliver(stamp{run: l.run, flow: l.id, publisher: p.id, sequence: 1 << 60}, time.Now()))
	require.Equal(t, uint64(2), l.verdict().Stray, "a publisher that there is not, and a number that was not sent")
}

func TestAPublisherWaitsForItsSlowestReceiver(t *testing.T) {
	t.Parallel()
	l := newFlows().named("flow")
	fast, slow := l.join("fast", nil), l.join("slow", nil)
	p := l.publisher("a")
	require.Nil(t, l.follow(p, 1), "nothing is on its way")
	l.require(p, l.begin(p))
	wait := l.follow(p, 1)
	s := stamp{run: l.run, flow: l.id, publisher: p.id}
	fast.deliver(s, time.Now())
	select {
	case <-wait:
		t.Fatal("the slow receiver has nothing yet")
	default:
	}
	slow.deliver(s, time.Now())
	<-wait
	require.Nil(t, l.follow(p, 1))
}

func TestAStampIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	payload := make([]byte, stampBytes+3)
	written := stamp{run: 1, flow: 2, publisher: 3, sequence: 4, sent: time.Unix(5, 6)}
	written.write(payload)
	read, ok := readStamp(payload)
	require.True(t, ok)
	require.Equal(t, written, read)
	_, ok = readStamp(payload[:stampBytes-1])
	require.False(t, ok)
}

func TestAQuantileIsRightWithinAnEighth(t *testing.T) {
	t.Parallel()
	var h histogram
	require.Zero(t, h.quantile(0.99))
	for us := range 100_000 {
		h.add(time.Duration(us) * time.Microsecond)
	}
	require.InEpsilon(t, 50.0, h.quantile(0.5), 0.125)
	require.InEpsilon(t, 99.0, h.quantile(0.99), 0.125)
}
