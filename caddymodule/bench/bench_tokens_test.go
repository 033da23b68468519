package bench

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
)

func always(token string) magazine {
	return func(int) func() (shot, bool) {
		return func() (shot, bool) { return shot{token: token}, true }
	}
}

// anyOf draws a session's token each time.
func anyOf(s *seed) magazine {
	return func(client int) func() (shot, bool) {
		random := rand.New(rand.NewPCG(rand.Uint64(), uint64(client)))
		return func() (shot, bool) { return shot{token: s.token(random.IntN(s.sessions))}, true }
	}
}

// eachOf takes each session's token once, or so again and again.
func eachOf(s *seed, again bool) magazine {
	var taken atomic.Int64
	return func(int) func() (shot, bool) {
		return func() (shot, bool) {
			i := int(taken.Add(1)) - 1
			if i >= s.sessions && !again {
				return shot{}, false
			}
			return shot{token: s.token(i % s.sessions)}, true
		}
	}
}

// nobodys makes tokens up.
func nobodys(client int) func() (shot, bool) {
	var key [32]byte
	copy(key[:], fmt.Sprint(rand.Uint64(), client))
	source := rand.NewChaCha8(key)
	return func() (shot, bool) { return shot{token: drawToken(source)}, true }
}

// malformed is as long as a token is, and none by its form.
func malformed(int) func() (shot, bool) {
	token := "mgx_" + base64.RawURLEncoding.EncodeToString(make([]byte, 32))
	return func() (shot, bool) { return shot{token: token}, true }
}

// logins send the login ids user1, user2 and so on in turn.
func logins(accounts int, password string) magazine {
	var turn atomic.Int64
	return func(int) func() (shot, bool) {
		return func() (shot, bool) {
			body := `{"login_id":"user` + strconv.Itoa(int(turn.Add(1))%accounts+1) + `"`
			if password != "" {
				body += `,"password":"` + password + `"`
			}
			return shot{body: body + "}"}, true
		}
	}
}
