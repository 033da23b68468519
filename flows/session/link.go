package session

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
)

// MailLink mails a link that FindLink accepts to the owner of an account. The argument
// mail is the type of the message. The step that makes the link valid charges the counters.
func (c *Call) MailLink(ctx context.Context, a record.Account, mail string, counters ...record.Counter) error {
	budget := c.AccountMails(strconv.FormatInt(a.ID, 10), mail)
	if err := c.Charge(ctx, budget...); err != nil {
		return err
	}
	link, message := c.newLink(a, mail)
	ctx = context.WithoutCancel(ctx) // a mailed link must work even if the client hangs up
	err := c.handOver(ctx, "mailing the link", budget, func(ctx context.Context) error {
		return c.m.send(ctx, c.Company, a, message)
	})
	if err != nil {
		return err
	}
	return c.store(ctx, link, counters...)
}

// newLink returns a session that only FindLink finds, and the mail with its link. The
// token has a prefix of its own, which is not valid in an Authorization header. By the
// prefix of a welcome link, clients know that they greet a new user.
func (c *Call) newLink(a record.Account, mail string) (record.Session, message.Message) {
	prefix, ttl := tokens.LinkPrefix, c.Company.Recovery.LinkTTL
	if mail == message.WelcomeLink {
		prefix, ttl = tokens.WelcomePrefix, c.Company.Recovery.WelcomeTTL
	}
	token, hash := tokens.New(prefix, record.AccountBucket(c.Company.Code, a.ID))
	link := c.newSession(Step{Account: a, State: record.MailedLink})
	link.Hash = hash
	link.Expires = c.Now.Add(time.Duration(ttl))
	link.Ends = link.Expires
	return link, message.Message{
		Type:    mail,
		To:      a.Email,
		Link:    strings.ReplaceAll(c.Company.Recovery.Link, "{token}", token),
		Expires: link.Expires,
	}
}
