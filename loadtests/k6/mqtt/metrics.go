// The metrics mqtt_* of k6. Samples are gathered and handed over together, because single ones would slow a run with much traffic.

package mqtt

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.k6.io/k6/lib"
	"go.k6.io/k6/metrics"
)

// How long samples wait to be handed to k6 together.
const flushEvery = 200 * time.Millisecond

// metricSet holds the module's metrics. Durations are in milliseconds, as k6 has them.
type metricSet struct {
	connects, connectionsOpen, connectDuration          *metrics.Metric
	sent, received, publishDuration, deliveryDuration   *metrics.Metric
	subscribeDuration, errors, bytesSent, bytesReceived *metrics.Metric
	expected, lost, repeated, outOfOrder, stray         *metrics.Metric
}

func registerMetrics(r *metrics.Registry) *metricSet {
	return &metricSet{
		connects:          r.MustNewMetric("mqtt_connects", metrics.Counter),
		connectionsOpen:   r.MustNewMetric("mqtt_connections", metrics.Gauge),
		connectDuration:   r.MustNewMetric("mqtt_connect_duration", metrics.Trend, metrics.Time),
		sent:              r.MustNewMetric("mqtt_messages_sent", metrics.Counter),
		received:          r.MustNewMetric("mqtt_messages_received", metrics.Counter),
		publishDuration:   r.MustNewMetric("mqtt_publish_duration", metrics.Trend, metrics.Time),
		deliveryDuration:  r.MustNewMetric("mqtt_delivery_duration", metrics.Trend, metrics.Time),
		subscribeDuration: r.MustNewMetric("mqtt_subscribe_duration", metrics.Trend, metrics.Time),
		errors:            r.MustNewMetric("mqtt_errors", metrics.Counter),
		bytesSent:         r.MustNewMetric("mqtt_bytes_sent", metrics.Counter, metrics.Data),
		bytesReceived:     r.MustNewMetric("mqtt_bytes_received", metrics.Counter, metrics.Data),
		expected:          r.MustNewMetric("mqtt_messages_expected", metrics.Counter),
		lost:              r.MustNewMetric("mqtt_messages_lost", metrics.Counter),
		repeated:          r.MustNewMetric("mqtt_messages_repeated", metrics.Counter),
		outOfOrder:        r.MustNewMetric("mqtt_messages_out_of_order", metrics.Counter),
		stray:             r.MustNewMetric("mqtt_messages_stray", metrics.Counter),
	}
}

// recorder collects the samples of one iteration and hands them to k6 in batches, because a sample
// of its own for each message costs more than the message.
type recorder struct {
	*metricSet
	ctx     context.Context
	samples chan<- metrics.SampleContainer
	tags    *metrics.TagSet

	mu       sync.Mutex
	waiting  metrics.Samples
	counters map[metrics.TimeSeries]float64
	links    map[*link]struct{}
	// Connections of the whole process, and the count that k6 received last.
	open         *atomic.Int64
	openReported int64
}

func newRecorder(ctx context.Context, state *lib.State, m *metricSet, open *atomic.Int64) *recorder {
	r := &recorder{
		metricSet: m, ctx: ctx, samples: state.Samples, tags: state.Tags.GetCurrentValues().Tags,
		counters: make(map[metrics.TimeSeries]float64), links: make(map[*link]struct{}), open: open, openReported: -1,
	}
	go r.run()
	return r
}

func (r *recorder) run() {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-ticker.C:
			r.flush()
		}
	}
}

// count adds to a counter.
func (r *recorder) count(m *metrics.Metric, tags *metrics.TagSet, n float64) {
	r.mu.Lock()
	r.counters[metrics.TimeSeries{Metric: m, Tags: tags}] += n
	r.mu.Unlock()
}

// observe adds a sample of a trend or a gauge.
func (r *recorder) observe(m *metrics.Metric, tags *metrics.TagSet, value float64) {
	sample := metrics.Sample{TimeSeries: metrics.TimeSeries{Metric: m, Tags: tags}, Time: time.Now(), Value: value}
	r.mu.Lock()
	r.waiting = append(r.waiting, sample)
	r.mu.Unlock()
}

func (r *recorder) took(m *metrics.Metric, tags *metrics.TagSet, d time.Duration) {
	r.observe(m, tags, float64(d)/float64(time.Millisecond))
}

// flush hands everything to k6. It must have been called before an iteration ends: k6 accepts
// nothing from one that is over.
func (r *recorder) flush() {
	now := time.Now()
	r.mu.Lock()
	for l := range r.links {
		r.countBytes(l)
	}
	if open := r.open.Load(); open != r.openReported {
		r.openReported = open
		series := metrics.TimeSeries{Metric: r.connectionsOpen, Tags: r.tags}
		r.waiting = append(r.waiting, metrics.Sample{TimeSeries: series, Time: now, Value: float64(open)})
	}
	batch := r.waiting
	r.waiting = make(metrics.Samples, 0, len(batch))
	for series, n := range r.counters {
		batch = append(batch, metrics.Sample{TimeSeries: series, Time: now, Value: n})
	}
	clear(r.counters)
	r.mu.Unlock()
	if len(batch) > 0 {
		metrics.PushIfNotDone(r.ctx, r.samples, batch)
	}
}

// opened and closed say which connections' bytes are counted.
func (r *recorder) opened(l *link) {
	r.open.Add(1)
	r.mu.Lock()
	r.links[l] = struct{}{}
	r.mu.Unlock()
}

func (r *recorder) closed(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.links[l]; known {
		r.countBytes(l)
		delete(r.links, l)
		r.open.Add(-1)
	}
}

func (r *recorder) countBytes(l *link) {
	r.counters[metrics.TimeSeries{Metric: r.bytesSent, Tags: l.tags.all}] += float64(l.conn.written.Swap(0))
	r.counters[metrics.TimeSeries{Metric: r.bytesReceived, Tags: l.tags.all}] += float64(l.conn.read.Swap(0))
}
