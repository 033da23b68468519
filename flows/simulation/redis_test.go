package simulation

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A channel stands for the part of Redis that the feed of revocations needs: it carries
// heartbeats and revocations to those who have subscribed. Nodes reach it as they reach
// Redis, through the client library.
type channel struct {
	mu    sync.Mutex
	conns []*conn // the oldest first
}

// A conn is a connection to the channel.
type conn struct {
	net.Conn
	names  []string    // the channels that it listens to
	output chan string // what the server says, in RESP
}

const revocations = "mnemogate:0" // the channel's name, as in store/redis

// Ended implements record.Feed, as the scripts of Redis do.
func (c *channel) Ended(hash record.TokenHash) { c.publish(revocations, "d"+string(hash[:])) }

// EndedAll implements record.Feed.
func (c *channel) EndedAll(e record.Revocation) {
	kind := 'a'
	if e.Account == 0 {
		kind = 'c'
	}
	c.publish(revocations, fmt.Sprintf("%c%d %d %s", kind, e.Generation, e.Account, e.Company))
}

// Flush and SetLease are for those who listen.
func (c *channel) Flush()             {}
func (c *channel) SetLease(time.Time) {}

// publish sends a message to those who listen now.
func (c *channel) publish(name, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		if slices.Contains(conn.names, name) {
			conn.output <- push("message", name, message)
		}
	}
}

func push(parts ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ">%d\r\n", len(parts))
	for _, p := range parts {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(p), p)
	}
	return b.String()
}

// close breaks all connections, as a failover does.
func (c *channel) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
}

// serve answers the commands of a connection: PING, SUBSCRIBE, and scripts, which are all
// heartbeats.
func (c *channel) serve(with net.Conn) {
	s := &conn{Conn: with, output: make(chan string, 1000)}
	c.mu.Lock()
	c.conns = append(c.conns, s)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.conns = slices.DeleteFunc(c.conns, func(other *conn) bool { return other == s })
		c.mu.Unlock()
		close(s.output)
		s.Close()
	}()
	go func() {
		for text := range s.output {
			if _, err := io.WriteString(s, text); err != nil {
				s.Close()
			}
		}
	}()
	for in := bufio.NewReader(s); ; {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		switch name := strings.ToUpper(command[0]); name {
		case "PING":
			s.output <- "+PONG\r\n"
		case "HELLO":
			s.output <- "%1\r\n$5\r\nproto\r\n:3\r\n"
		case "SUBSCRIBE":
			for i, channel := range command[1:] {
				s.output <- fmt.Sprintf(">3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(channel), channel, i+1)
			}
			c.mu.Lock()
			s.names = append(s.names, command[1:]...)
			c.mu.Unlock()
		case "EVALSHA":
			c.publish(command[6], command[7]+"data")
			s.output <- "*1\r\n:1\r\n"
		default:
			s.output <- "+OK\r\n"
		}
	}
}

func readCommand(in *bufio.Reader) (command []string, err error) {
	line := func() (string, error) {
		text, err := in.ReadString('\n')
		return strings.TrimSuffix(text, "\r\n"), err
	}
	first, err := line()
	if err != nil || !strings.HasPrefix(first, "*") {
		return []string{first}, err
	}
	n, _ := strconv.Atoi(first[1:])
	for range n {
		length, err := line()
		if err != nil {
			return nil, err
		}
		size, _ := strconv.Atoi(length[1:])
		part := make([]byte, size+2)
		if _, err := io.ReadFull(in, part); err != nil {
			return nil, err
		}
		command = append(command, string(part[:size]))
	}
	return command, nil
}
