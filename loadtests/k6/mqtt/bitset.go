package mqtt

import "math/bits"

// bitset holds sequence numbers, which are dense from 0 on: a number takes memory for all below it, so callers bound it.
type bitset struct{ words []uint64 }

// add says whether the number was not there before.
func (b *bitset) add(n uint64) bool {
	word, bit := n/64, uint64(1)<<(n%64)
	for uint64(len(b.words)) <= word {
		b.words = append(b.words, 0)
	}
	if b.words[word]&bit != 0 {
		return false
	}
	b.words[word] |= bit
	return true
}

func (b *bitset) count() (n uint64) {
	for _, word := range b.words {
		n += uint64(bits.OnesCount64(word))
	}
	return n
}

// missing counts the numbers of b that other does not have.
func (b *bitset) missing(other *bitset) (n uint64) {
	for i, word := range b.words {
		if i < len(other.words) {
			word &^= other.words[i]
		}
		n += uint64(bits.OnesCount64(word))
	}
	return n
}
