package store

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/flows/record"
)

var (
	postgresSelectAccount = `
		SELECT id, company, ` + accountColumns + `, epoch, barred, created, updated,
			array_to_json(ARRAY(SELECT json_build_object('provider', provider, 'subject', subject)
				FROM identities WHERE account = accounts.id)),
			array_to_json(ARRAY(SELECT json_build_object('code', code, 'version', version, 'at', at)
				FROM acceptances WHERE account = accounts.id)),
			(SELECT count(*) FROM backup_codes WHERE account = accounts.id),
			(SELECT count(*) FROM passkeys WHERE account = accounts.id),
			array_to_json(ARRAY(SELECT json_build_object('kind', kind, 'count', count, 'until', until) FROM tallies
				WHERE company = accounts.company AND account = accounts.id AND login_id = '')),
			coalesce((SELECT era FROM eras WHERE company = accounts.company), 0)
		FROM accounts`
	postgresAccountByID        = postgresSelectAccount + ` WHERE ` + postgresOne
	postgresAccountByMnemocode = postgresSelectAccount + ` WHERE company = $1 AND mnemocode = $2`
	// If no account is found, the row is an account 0 with the failure counts of the
	// login id hash and the company generation. The 0 is the parameter $4: see
	// postgresAccounts.
	postgresAccountByLoginID = postgresSelectAccount + `
		WHERE id = (SELECT account FROM login_ids WHERE company = $1 AND login_id = $2)
		UNION ALL
		SELECT 0, '', ` + noAccount + `, 0, 0, 0, 0, '[]', '[]', 0, 0,
			array_to_json(ARRAY(SELECT json_build_object('kind', kind, 'count', count, 'until', until) FROM tallies
				WHERE company = $1 AND account = $4 AND login_id = $3)),
			coalesce((SELECT era FROM eras WHERE company = $1), 0)
		WHERE (SELECT account FROM login_ids WHERE company = $1 AND login_id = $2) IS NULL`
	postgresAccountByIdentity = postgresSelectAccount + `
		WHERE id = (SELECT account FROM identities WHERE company = $1 AND provider = $2 AND subject = $3)`
)

func (s postgresAccounts) ByLoginID(ctx context.Context, company, loginID, loginIDHash string) (record.Account, error) {
	a, err := s.load(ctx, postgresAccountByLoginID, company, loginID, loginIDHash, 0)
	if err == nil && a.ID == 0 {
		return record.Account{CompanyGeneration: a.CompanyGeneration, FailureCounts: a.FailureCounts}, record.ErrNotFound
	}
	return a, err
}

func (s postgresAccounts) ByID(ctx context.Context, company string, id int64) (record.Account, error) {
	return s.load(ctx, postgresAccountByID, company, id)
}

func (s postgresAccounts) ByMnemocode(ctx context.Context, company, mnemocode string) (record.Account, error) {
	return s.load(ctx, postgresAccountByMnemocode, company, mnemocode)
}

func (s postgresAccounts) ByIdentity(ctx context.Context, company string, identity record.Identity) (record.Account, error) {
	return s.load(ctx, postgresAccountByIdentity, company, identity.Provider, identity.Subject)
}

var postgresAccountsOf = postgresSelectAccount + ` WHERE company = $1 AND mnemocode > $2 ORDER BY mnemocode LIMIT $3`

func (s postgresAccounts) List(ctx context.Context, company, after string, limit int) ([]record.Account, error) {
	var all []record.Account
	err := s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		after = strings.ToValidUTF8(after, "\uFFFD")
		all, err = collectPostgres(ctx, q, accountScan(fromText), postgresAccountsOf, company, after, limit)
		return err
	})
	return all, translatePostgres("listing accounts", err)
}

var (
	// The last mnemocode that a search looks at, and how many it looks at.
	postgresSearched = `
		SELECT coalesce(max(mnemocode), ''), count(*)
		FROM (SELECT mnemocode FROM accounts WHERE company = $1 AND mnemocode > $2 ORDER BY mnemocode LIMIT $3) AS searched`
	postgresFound = postgresSelectAccount + `
		WHERE company = $1 AND mnemocode > $2 AND mnemocode <= $3 AND ($4 = '' OR status = $4)
			AND ($5 = '' OR EXISTS (SELECT 1 FROM login_ids WHERE account = accounts.id AND strpos(login_id, $5) > 0))
		ORDER BY mnemocode LIMIT $6`
)

func (s postgresAccounts) Search(ctx context.Context, company string, match record.Match, after string, limit int) (found []record.Account, last string, err error) {
	if !findable(match.Part) {
		return nil, "", ctx.Err()
	}
	err = s.read(ctx, func(ctx context.Context, q postgresQueries) error {
		after = strings.ToValidUTF8(after, "\uFFFD")
		var searched int
		if err := q.row(ctx, postgresSearched, company, after, match.Reach).Scan(&last, &searched); err != nil {
			return err
		}
		found, err = collectPostgres(ctx, q, accountScan(fromText), postgresFound, company, after, last, string(match.Status), match.Part, limit)
		if searched < match.Reach {
			last = ""
		}
		return err
	})
	return found, last, translatePostgres("searching accounts", err)
}

// findable reports whether all strings among the arguments are valid UTF-8. Others
// can't be in the database, and PostgreSQL refuses to search for them.
func findable(args ...any) bool {
	return !slices.ContainsFunc(args, func(arg any) bool {
		text, ok := arg.(string)
		return ok && !utf8.ValidString(text)
	})
}

// load returns the one account that a query finds.
func (s postgresAccounts) load(ctx context.Context, query string, args ...any) (record.Account, error) {
	if !findable(args...) {
		return record.Account{}, record.ErrNotFound
	}
	var a record.Account
	err := s.read(ctx, func(ctx context.Context, q postgresQueries) (err error) {
		a, err = scanPostgresAccount(q.row(ctx, query, args...))
		return err
	})
	return a, translatePostgres("loading account", err)
}

func scanPostgresAccount(row scanner) (record.Account, error) { return accountScan(fromText)(row) }
