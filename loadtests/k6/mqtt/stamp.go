// The first bytes of a flow's payload: they name the message, so that the ledger can find it, and have the time of its sending.

package mqtt

import (
	"encoding/binary"
	"time"
)

// stamp opens the payload of a flow's message. A message of an earlier run that a session still holds
// has another run number.
type stamp struct {
	run, flow, publisher uint32
	sequence             uint64
	sent                 time.Time
}

const stampBytes = 3*4 + 2*8

// write needs stampBytes of room, which the check of flood's setting size ensures.
func (s stamp) write(payload []byte) {
	binary.BigEndian.PutUint32(payload, s.run)
	binary.BigEndian.PutUint32(payload[4:], s.flow)
	binary.BigEndian.PutUint32(payload[8:], s.publisher)
	binary.BigEndian.PutUint64(payload[12:], s.sequence)
	binary.BigEndian.PutUint64(payload[20:], uint64(s.sent.UnixNano()))
}

func readStamp(payload []byte) (stamp, bool) {
	if len(payload) < stampBytes {
		return stamp{}, false
	}
	return stamp{
		run: binary.BigEndian.Uint32(payload), flow: binary.BigEndian.Uint32(payload[4:]),
		publisher: binary.BigEndian.Uint32(payload[8:]), sequence: binary.BigEndian.Uint64(payload[12:]),
		sent: time.Unix(0, int64(binary.BigEndian.Uint64(payload[20:]))),
	}, true
}
