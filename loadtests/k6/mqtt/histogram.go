// A histogram of durations in little memory, for the latencies of a flow.

package mqtt

import (
	"math"
	"math/bits"
	"time"
)

// Each power of two has this many buckets, so a quantile is right within an eighth.
const bucketsEach = 8

// histogram counts durations in microseconds.
type histogram struct {
	buckets [64 * bucketsEach]uint64
	count   uint64
}

func (h *histogram) add(d time.Duration) {
	us := uint64(max(d.Microseconds(), 0))
	h.buckets[bucketOf(us)]++
	h.count++
}

func bucketOf(us uint64) int {
	if us < bucketsEach {
		return int(us)
	}
	exponent := bits.Len64(us) - 1
	return (exponent-2)*bucketsEach + int(us>>(exponent-3))&(bucketsEach-1)
}

// upper is the first value that is beyond a bucket.
func upper(bucket int) uint64 {
	if bucket < bucketsEach {
		return uint64(bucket) + 1
	}
	exponent := bucket/bucketsEach + 2
	return uint64(bucketsEach+bucket%bucketsEach+1) << (exponent - 3)
}

// quantile returns milliseconds, 0 when nothing was counted.
func (h *histogram) quantile(q float64) float64 {
	wanted := uint64(math.Ceil(q * float64(h.count)))
	var passed uint64
	for bucket, n := range h.buckets {
		passed += n
		if n > 0 && passed >= wanted {
			return float64(upper(bucket)) / 1000
		}
	}
	return 0
}
