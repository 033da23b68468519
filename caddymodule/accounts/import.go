package accounts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	// importWorkers is how many lines are stored at once. SQLite commits waiting
	// changes as one batch.
	importWorkers = 64
	// importStall is how long a client may pause without sending a byte, or without reading
	// an answer that waits for it.
	importStall = time.Minute
	exportPage  = 500
	// checkedFor is how long exports rely on a check of the store.
	checkedFor = 10 * time.Minute
)

// importLines imports one account from each line. It answers while it reads: a line
// for each line that failed, and the counts at the end. An account that exists is skipped or,
// with update=true, changed as by PATCH, which needs the right to write. So a client can send
// an interrupted import again from the start. With verbose=true the response also has a line
// for each skipped line and each warning.
func (c *Call) importLines() error {
	update, err := c.boolean("update")
	if err != nil {
		return err
	}
	rights := []Right{Import}
	if update {
		if err := c.require(Write); err != nil {
			return err
		}
		rights = append(rights, Write)
	}
	verbose, err := c.boolean("verbose")
	if err != nil {
		return err
	}
	body := bodies.Streamed(c.W, c.Request, importStall)
	_ = http.NewResponseController(c.W).EnableFullDuplex() // HTTP/2 does not need it
	c.W.Header().Set("Content-Type", "application/x-ndjson")
	c.W.Header().Set("Cache-Control", "no-store")
	c.Admin.Bulk = true
	i := &importer{
		admin:   c.Admin,
		update:  update,
		verbose: verbose,
		allowed: func() error { return c.stillAllowed(rights...) },
		workers: make(chan struct{}, importWorkers),
		out:     bodies.Streaming(c.W, c.Request, importStall),
		busy:    map[string]bool{},
	}
	counts := i.run(c.Context(), body)
	if counts.Error != "" {
		c.App.Log().Warn("an import was given up", "company", c.Admin.Company.Code, "line", counts.Line, "error", i.broken)
	}
	_ = api.WriteLine(i.out, counts) // the client may be gone
	return nil
}

// errRemoved ends an import or export that a new request could not begin.
var errRemoved = &Error{Status: http.StatusForbidden, Message: "Caddy stops, or a reload has removed the key, its right, the company or its store from the configuration"}

// stillAllowed returns errRemoved if a reload has removed the company, its store, the key or one
// of the rights since the request began, or if Caddy stops.
func (c *Call) stillAllowed(rights ...Right) error {
	if !c.App.IsReplaced() {
		return nil
	}
	now, company := app.Running(), c.Admin.Company.Code
	if now == nil || !now.SharesStores(c.App) || now.Companies[company] == nil {
		return errRemoved
	}
	for _, right := range rights {
		if c.key != nil && !now.Allows(c.hash, string(right), company) {
			return errRemoved
		}
	}
	return nil
}

// An importer stores the accounts of many lines in parallel, with the same result as
// one after another: a line waits for earlier lines that have a value in common with
// it, and a line may take a value that an earlier line frees. The one difference is that
// it may also take a value that a later line frees.
type importer struct {
	admin   *manage.Admin
	update  bool
	verbose bool         // report skipped lines and warnings
	allowed func() error // asked before each line
	workers chan struct{}
	hashing sync.Mutex // held while plain secrets are hashed, so that an import does not delay logins
	running sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	out    io.Writer
	busy   map[string]bool // the claims of the lines that are being stored, or in again
	again  []importLine    // lines that failed because a value was taken, to be tried once more
	counts api.Counts
	broken error // why the import was aborted
}

// An importLine is a parsed line.
type importLine struct {
	n         int
	mnemocode string
	change    manage.Change
	claims    []string
}

func (i *importer) run(ctx context.Context, body io.Reader) api.Counts {
	lines := api.NewLines(body)
	for i.alive() {
		line, err := lines.Next()
		if err == io.EOF {
			break
		}
		switch err {
		case nil:
			i.take(ctx, lines.N, line)
		case api.ErrLongLine, api.ErrNotLines:
			i.fail(lines.N, &Error{Message: err.Error()})
		default:
			i.giveUp(lines.N+1, fmt.Errorf("the rest could not be read: %w", err))
		}
	}
	i.wait(ctx)
	return i.counts
}

func (i *importer) alive() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.broken == nil
}

// take parses a line and starts to store it.
func (i *importer) take(ctx context.Context, n int, text []byte) {
	if err := i.allowed(); err != nil {
		i.giveUp(n, err)
		return
	}
	change, err := parseChange(text, changeImport, false)
	if err != nil {
		i.fail(n, err)
		return
	}
	var a record.Account
	if err := change.Apply(&a); err != nil {
		i.fail(n, err)
		return
	}
	manage.Read(i.admin.Company, &a, record.Account{})
	line := importLine{n, a.Mnemocode, change, claimsOf(a)}
	if !i.claim(line.claims) {
		i.wait(ctx)
		i.claim(line.claims)
	}
	i.workers <- struct{}{}
	i.running.Go(func() {
		defer func() { <-i.workers }()
		i.try(ctx, line, i.update) // without update, no line frees a value
	})
}

// wait waits until the lines that were taken are stored or have failed. If a value of a
// line was taken, an earlier line may have freed it since, so wait tries the line again.
func (i *importer) wait(ctx context.Context) {
	i.running.Wait()
	again := i.again
	i.again = nil
	slices.SortFunc(again, func(a, b importLine) int { return cmp.Compare(a.n, b.n) })
	for _, line := range again {
		i.try(ctx, line, false)
	}
}

// try stores a line. If a value of it is taken and again is set, try keeps the line, with
// its claims, for wait.
func (i *importer) try(ctx context.Context, line importLine, again bool) {
	err := panics.Contain(func() error { return i.store(ctx, line.n, line.mnemocode, line.change) })
	if _, taken := errors.AsType[*record.TakenError](err); taken && again {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.again = append(i.again, line)
		return
	}
	i.release(line.claims)
	switch {
	case err == nil:
	case asError(err).Status >= http.StatusInternalServerError: // a store or mnemogate itself failed, so the following lines would fail, too
		i.giveUp(line.n, err)
	default:
		i.fail(line.n, err)
	}
}

// claimsOf returns the values that must be unique among accounts. Two lines that
// share one are not stored at the same time.
func claimsOf(a record.Account) []string {
	claims := []string{"mnemocode " + a.Mnemocode}
	for _, id := range record.LoginIDs(a) {
		claims = append(claims, "login "+id)
	}
	for _, identity := range a.Identities {
		claims = append(claims, fmt.Sprint("identity ", identity.Provider, " ", identity.Subject))
	}
	return claims
}

// claim marks claims as busy. It fails if one is busy already, or if many lines wait to
// be tried again.
func (i *importer) claim(claims []string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.again) >= importWorkers {
		return false
	}
	for _, claim := range claims {
		if i.busy[claim] {
			return false
		}
	}
	for _, claim := range claims {
		i.busy[claim] = true
	}
	return true
}

func (i *importer) release(claims []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, claim := range claims {
		delete(i.busy, claim)
	}
}

func (i *importer) store(ctx context.Context, n int, mnemocode string, change manage.Change) error {
	plain := change.Password != "" || change.Answer != ""
	if plain && !i.update {
		// Hashing is slow, so don't hash for an account that will be skipped.
		if _, err := i.admin.ByMnemocode(ctx, mnemocode); err == nil {
			i.skip(n, isThere)
			return nil
		}
	}
	if plain {
		i.hashing.Lock()
		defer i.hashing.Unlock()
	}
	if i.update { // first, since Create refuses lines that Change accepts
		if err := i.change(ctx, n, mnemocode, change); !errors.Is(err, record.ErrNotFound) {
			return err
		}
	}
	a, err := i.admin.Create(ctx, change)
	taken, ok := errors.AsType[*record.TakenError](err)
	there := ok && taken.Field == "profile_mnemocode"
	switch {
	case err == nil:
		i.count(n, &i.counts.Created, a)
	case there && !i.update:
		i.skip(n, isThere)
	case there: // another client has created it meanwhile
		return i.change(ctx, n, mnemocode, change)
	default:
		return err
	}
	return nil
}

func (i *importer) change(ctx context.Context, n int, mnemocode string, change manage.Change) error {
	a, changed, err := i.admin.Change(ctx, mnemocode, change)
	switch {
	case err != nil:
		return err
	case changed:
		i.count(n, &i.counts.Updated, a)
	default:
		i.skip(n, isSame)
	}
	return nil
}

// Reasons for skipping lines.
const (
	isThere = "an account with this profile_mnemocode exists, and an import changes it only with update"
	isSame  = "the account is like this already"
)

func (i *importer) skip(n int, why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.counts.Skipped++
	if i.verbose {
		i.tell(api.Failure{Line: n, Skipped: why})
	}
}

// Warnings about accounts that were stored.
const (
	isUnusable = "nobody can log in to the account; it needs a password and a login id, a phone or an email that the company recovers by, or the identity of a provider: import it again with update"
	isQuick    = "the hash is quick to guess for anybody who gets it, and stays until the first login; for users who may never log in, leave it out, and they set a password by recovery"
)

// count counts an account that was stored, and warns if nobody can use it or its hash is
// weak.
func (i *importer) count(n int, what *int, a record.Account) {
	warning := ""
	switch {
	case !i.admin.IsUsable(a):
		warning = isUnusable
	case password.IsQuick(a.PasswordHash):
		warning = isQuick
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	*what++
	if warning != "" {
		i.counts.Warned++
		if i.verbose {
			i.tell(api.Failure{Line: n, Warning: warning})
		}
	}
}

func (i *importer) fail(n int, err error) {
	refusal := asError(err)
	// The field is reported separately.
	message := strings.TrimPrefix(refusal.Message, refusal.Field+": ")
	i.mu.Lock()
	defer i.mu.Unlock()
	i.counts.Failed++
	i.tell(api.Failure{Line: n, Field: refusal.Field, Error: message})
}

// tell adds a line to the answer. If the client does not read it, the import is given up: a
// client that reads only after it has sent everything would wait for ever. i.mu must be held.
func (i *importer) tell(line api.Failure) {
	if err := api.WriteLine(i.out, line); err != nil {
		i.stop(line.Line, fmt.Errorf("the client does not read the answer: %w", err))
	}
}

func (i *importer) giveUp(n int, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stop(n, err)
}

// stop is giveUp with i.mu held.
func (i *importer) stop(n int, err error) {
	if i.broken == nil || n < i.counts.Line {
		i.broken = err
		i.counts.Line = n
		i.counts.Error = cmp.Or(asError(err).Message, err.Error())
	}
}

// export writes all accounts as lines that import can read, with secrets as hashes.
// It is for moving to another store. With secrets=true the lines include the secrets
// of authenticator apps, which can't be hashed. Accounts that are created, renamed or
// deleted during the export may be missing or included.
func (c *Call) export() error {
	secrets, err := c.boolean("secrets")
	if err != nil {
		return err
	}
	// Damage can hide accounts from a list that seems complete. A check reads the whole store,
	// and a script may export a thousand companies.
	if _, err := c.App.CheckStore(c.Context(), time.Now().Add(-checkedFor)); err != nil {
		return err
	}
	after, out := "", bodies.Streaming(c.W, c.Request, importStall)
	for {
		ctx, cancel := context.WithTimeout(c.Context(), timeout)
		lines, last, err := c.exportPage(ctx, after, secrets)
		cancel()
		if err != nil && after == "" {
			return err
		}
		if err != nil {
			c.App.Log().Warn("an export was interrupted", "company", c.Admin.Company.Code, "error", err)
			return ErrBroken
		}
		if after == "" {
			e := record.Event{Name: record.AccountsExported, Company: c.Admin.Company.Code, Address: c.Address, Actor: c.actor()}
			if secrets {
				e.Reason = "secrets"
			}
			c.Admin.Emit(c.Context(), e)
			c.W.Header().Set("Content-Type", "application/x-ndjson")
			c.W.Header().Set("Cache-Control", "no-store")
		}
		if _, err := out.Write(lines); err != nil {
			return nil // the client is gone
		}
		if last == "" {
			return nil
		}
		after = last
	}
}

// exportPage returns the lines of a page that begins after the mnemocode after. It
// also returns the last mnemocode of the page, if there may be more pages.
func (c *Call) exportPage(ctx context.Context, after string, secrets bool) (lines []byte, last string, err error) {
	if err := c.stillAllowed(Export); err != nil {
		return nil, "", err
	}
	accounts, err := c.Admin.List(ctx, after, exportPage)
	if err != nil {
		return nil, "", err
	}
	var b bytes.Buffer
	for _, a := range accounts {
		codes, err := c.Admin.BackupCodeHashes(ctx, a)
		if err != nil {
			return nil, "", err
		}
		exported := api.ExportedAccountOf(a, codes)
		if a.Passkeys > 0 {
			passkeys, err := c.Admin.Passkeys(ctx, a.Mnemocode)
			if errors.Is(err, record.ErrNotFound) {
				continue // it was deleted after it was listed
			}
			if err != nil {
				return nil, "", err
			}
			exported.SetPasskeys(passkeys)
		}
		if secrets {
			if exported.TOTPSecret, err = c.Admin.ExportTOTP(ctx, a); err != nil {
				return nil, "", err
			}
		}
		if err := api.WriteLine(&b, exported); err != nil {
			return nil, "", err
		}
	}
	if len(accounts) == exportPage {
		last = accounts[exportPage-1].Mnemocode
	}
	return b.Bytes(), last, nil
}
