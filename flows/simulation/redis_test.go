package simulation

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A channel stands for the part of Redis that the feed of revocations needs: it carries
// heartbeats and revocations to those who have subscribed. Nodes reach it as they reach
// Redis, through the client library.
type channel struct {
	mu    sync.Mutex
	conns []*conn // the oldest first
}

// A conn is the server's end of a connection to the channel.
type conn struct {
	*channel
	mailbox
	names  []string // the channels that it listens to
	input  bytes.Buffer
	closed bool
}

// A mailbox holds what a server has sent, in RESP, until the client reads it.
type mailbox chan string

func newMailbox() mailbox { return make(mailbox, 100) }

func (m mailbox) Read(data []byte) (int, error) {
	text, ok := <-m
	if !ok {
		return 0, io.EOF
	}
	return copy(data, text), nil
}

const revocations = "mnemogate:0" // the channel's name, as in store/redis

// Ended implements record.Feed, as the scripts of Redis do.
func (c *channel) Ended(hash record.TokenHash) { c.publish(revocations, "d"+string(hash[:])) }

// EndedAll implements record.Feed.
func (c *channel) EndedAll(e record.Revocation) {
	c.publish(revocations, fmt.Sprintf("a%d %d %s", e.Generation, e.Account, e.Company))
}

// Flush and SetLease are for those who listen.
func (c *channel) Flush()             {}
func (c *channel) SetLease(time.Time) {}

// publish sends a message to those who listen now.
func (c *channel) publish(name, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.send(name, message)
}

func (c *channel) send(name, message string) {
	for _, conn := range slices.Clone(c.conns) {
		if slices.Contains(conn.names, name) {
			conn.say(fmt.Sprintf(">3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(name), name, len(message), message))
		}
	}
}

func (c *channel) connect() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &conn{channel: c, mailbox: newMailbox()}
	c.conns = append(c.conns, s)
	return s
}

// say sends an answer or a message. Redis does not wait for slow clients.
func (s *conn) say(text string) {
	if s.closed {
		return
	}
	select {
	case s.mailbox <- text:
	default:
		s.end()
	}
}

// end ends the connection.
func (s *conn) end() {
	if !s.closed {
		s.closed = true
		close(s.mailbox)
		s.conns = slices.DeleteFunc(s.conns, func(other *conn) bool { return other == s })
	}
}

func (s *conn) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	return nil
}

// Write carries out commands: PING, SUBSCRIBE, and scripts, which are all heartbeats.
func (s *conn) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.input.Write(data); s.input.Len() > 0 && !s.closed; {
		command := readCommand(&s.input)
		switch name := strings.ToUpper(command[0]); name {
		case "PING":
			s.say("+PONG\r\n")
		case "HELLO":
			s.say("%1\r\n$5\r\nproto\r\n:3\r\n")
		case "SUBSCRIBE":
			for i, channel := range command[1:] {
				s.say(fmt.Sprintf(">3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(channel), channel, i+1))
			}
			s.names = append(s.names, command[1:]...)
		case "EVALSHA":
			s.send(command[6], command[7]+"data")
			s.say("*1\r\n:1\r\n")
		default:
			s.say("+OK\r\n")
		}
	}
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	return len(data), nil
}

// readCommand reads a command. The client library writes each in one piece.
func readCommand(in *bytes.Buffer) (command []string) {
	line := func() string {
		text, _ := in.ReadString('\n')
		return strings.TrimSuffix(text, "\r\n")
	}
	first, parts := strings.CutPrefix(line(), "*")
	if !parts { // the PING that store/redis sends first
		return []string{first}
	}
	n, _ := strconv.Atoi(first)
	for range n {
		length, _ := strconv.Atoi(line()[1:])
		command = append(command, string(in.Next(length)))
		in.Next(len("\r\n"))
	}
	return command
}

// dialScripts opens a connection to the Redis that runs the scripts, or returns nil.
func dialScripts(to *miniredis.Miniredis) io.ReadWriteCloser {
	conn, _ := storetest.DialMiniredis(to.Dial)(context.Background(), "", "")
	if conn == nil {
		return nil
	}
	said := newMailbox()
	go func() {
		defer close(said)
		for data := make([]byte, 1024); ; {
			n, err := conn.Read(data)
			if err != nil {
				return
			}
			said <- string(data[:n])
		}
	}()
	return struct {
		mailbox
		io.WriteCloser
	}{said, conn}
}
