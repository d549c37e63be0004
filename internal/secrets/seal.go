package secrets

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

// KeySize is the length of a key in bytes.
const KeySize = 32

// A sealed value is: format, id of the key, then the nonce and the ciphertext with its tag.
const (
	format = 1
	idSize = 8

	// HeadSize is the length of the head of a sealed value, in bytes. The head names the key.
	HeadSize = 1 + idSize
)

// ErrKey says that a value was sealed with a key that is not in the ring.
var ErrKey = errors.New("sealed with a key that this server does not have; add it to HOLDFAST_SECRET_KEYS")

var errForged = errors.New("not a value that was sealed for this place: it was changed or copied here")

type key struct {
	id   [idSize]byte
	raw  []byte
	aead cipher.AEAD
}

// Keys seals and opens values. Its methods may be called from many goroutines.
type Keys struct{ keys []key }

// NewKeys makes a ring of keys of KeySize bytes each. The first one seals.
func NewKeys(raw ...[]byte) (*Keys, error) {
	k := new(Keys)
	for i, r := range raw {
		if len(r) != KeySize {
			return nil, fmt.Errorf("key %d has %d bytes; a key needs %d", i+1, len(r), KeySize)
		}
		block, err := aes.NewCipher(r)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		k.keys = append(k.keys, key{id: keyID(r), raw: r, aead: aead})
	}
	if len(k.keys) == 0 {
		return nil, errors.New("there are no keys; give at least one")
	}
	return k, nil
}

// keyID names a key without revealing any of it.
func keyID(raw []byte) [idSize]byte {
	sum := sha256.Sum256(append([]byte("holdfast key id\x00"), raw...))
	return [idSize]byte(sum[:idSize])
}

// Seal encrypts a value for a place. Open needs the same place, so nobody can move a sealed value to another one.
func (k *Keys) Seal(value []byte, place string) []byte {
	first := &k.keys[0]
	out := make([]byte, 0, HeadSize+len(value)+first.aead.Overhead())
	out = append(append(out, format), first.id[:]...)
	return first.aead.Seal(out, nil, value, []byte(place)) //nolint:gosec // the nonce is random, and made within
}

// Open decrypts a value that Seal made for the same place. It returns ErrKey if none of the keys fits.
func (k *Keys) Open(sealed []byte, place string) ([]byte, error) {
	if len(sealed) < HeadSize || sealed[0] != format {
		return nil, errForged
	}
	i := k.Key(sealed)
	if i < 0 {
		return nil, ErrKey
	}
	value, err := k.keys[i].aead.Open(nil, nil, sealed[HeadSize:], []byte(place))
	if err != nil {
		return nil, errForged
	}
	return value, nil
}

// Derive returns keys for another purpose, one of each key of the ring in its order. None of them reveals another key.
func (k *Keys) Derive(purpose string) ([][]byte, error) {
	keys := make([][]byte, len(k.keys))
	for i, from := range k.keys {
		key, err := hkdf.Key(sha256.New, from.raw, nil, "holdfast "+purpose, KeySize)
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	return keys, nil
}

// Sealed reports whether a value has the form of one that Seal made, with any key.
func Sealed(value []byte) bool { return len(value) >= HeadSize && value[0] == format }

// Fresh reports whether a value was sealed with the first key.
func (k *Keys) Fresh(sealed []byte) bool { return k.Key(sealed) == 0 }

// Key returns the index of the key that sealed a value, or a negative number if it is not in the ring. It needs only
// the first HeadSize bytes of the value.
func (k *Keys) Key(sealed []byte) int {
	if len(sealed) < HeadSize || sealed[0] != format {
		return -1
	}
	return slices.IndexFunc(k.keys, func(x key) bool { return x.id == [idSize]byte(sealed[1:HeadSize]) })
}
