package fake

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// An Accounts is what all nodes share of a store of accounts. Its zero value is empty.
type Accounts struct {
	mu sync.Mutex
	accountData
}

// accountData is what a standby has too.
type accountData struct {
	numbered    int64 // the last number of an account, event or claim
	rows        map[int64]*row
	failures    map[record.FailureKey]map[record.FailureKind]failure
	pending     map[account]record.Revocation
	generations map[string]int64 // of companies
	seeds       map[[2]string]bool
	spent       map[[32]byte]time.Time
	secrets     []record.Secret
	keys        map[string][]record.SigningKey
	queues      map[[2]string]*queue // by company and name
}

// Snapshot returns a function that brings the store back to the present state, as a
// failover does to a standby that has got nothing since. Numbers are not given out again.
func (s *Accounts) Snapshot() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	then := s.accountData
	then.rows, then.failures, then.queues = map[int64]*row{}, map[record.FailureKey]map[record.FailureKind]failure{}, map[[2]string]*queue{}
	for id, r := range s.rows {
		then.rows[id] = r.clone()
	}
	for key, counts := range s.failures {
		then.failures[key] = maps.Clone(counts)
	}
	for name, q := range s.queues {
		then.queues[name] = &queue{q.OutboxQueue, q.due, slices.Clone(q.accounts)}
		then.queues[name].Events = slices.Clone(q.Events)
	}
	then.pending, then.generations, then.seeds = maps.Clone(s.pending), maps.Clone(s.generations), maps.Clone(s.seeds)
	then.spent, then.secrets, then.keys = maps.Clone(s.spent), slices.Clone(s.secrets), maps.Clone(s.keys)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		then.numbered = s.numbered
		s.accountData = then
	}
}

// A row is an account with all that belongs to it.
type row struct {
	record.Account
	loginIDs [][2]string // field and login id
	backup   []string
	passkeys []record.Passkey
}

func (r *row) clone() *row {
	c := *r
	c.Identities, c.Accepted, c.loginIDs = slices.Clone(r.Identities), slices.Clone(r.Accepted), slices.Clone(r.loginIDs)
	c.backup, c.passkeys = slices.Clone(r.backup), slices.Clone(r.passkeys)
	return &c
}

type failure struct {
	record.FailureCount
	changed time.Time
}

type queue struct {
	record.OutboxQueue
	due      time.Time
	accounts []int64 // of the Events
}

// Through returns a node's view of the store.
func (s *Accounts) Through(link Link) record.Accounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows == nil {
		s.rows, s.failures, s.pending = map[int64]*row{}, map[record.FailureKey]map[record.FailureKind]failure{}, map[account]record.Revocation{}
		s.generations, s.seeds, s.spent = map[string]int64{}, map[[2]string]bool{}, map[[32]byte]time.Time{}
		s.keys, s.queues = map[string][]record.SigningKey{}, map[[2]string]*queue{}
	}
	return accounts{Accounts: s, link: link}
}

type accounts struct {
	missing
	*Accounts
	link Link
}

// missing has the methods that nobody simulates: a call panics.
type missing struct{ record.Accounts }

func (s accounts) do(ctx context.Context, what string, call func() error) error {
	return do(ctx, s.link, &s.mu, "accounts."+what, call)
}

func (s *Accounts) next() int64 {
	s.numbered++
	return s.numbered
}

// row returns an account of a company, or ErrNotFound.
func (s *Accounts) row(company string, id int64) (*row, error) {
	r := s.rows[id]
	if r == nil || r.Company != company {
		return nil, record.ErrNotFound
	}
	return r, nil
}

// load returns an account as readers get it.
func (s *Accounts) load(r *row) record.Account {
	a := r.Account
	a.Identities, a.Accepted = slices.Clone(a.Identities), slices.Clone(a.Accepted)
	a.BackupCodes, a.Passkeys, a.CompanyGeneration = len(r.backup), len(r.passkeys), s.generations[a.Company]
	a.FailureCounts = s.counts(record.FailureKey{Company: a.Company, Account: a.ID})
	return a
}

// one loads the account for which which is true.
func (s accounts) one(ctx context.Context, what string, which func(*row) bool) (record.Account, error) {
	return ask(ctx, s.link, &s.mu, "accounts."+what, func() (record.Account, error) {
		for _, r := range s.rows {
			if which(r) {
				return s.load(r), nil
			}
		}
		return record.Account{}, record.ErrNotFound
	})
}

func (s accounts) ByLoginID(ctx context.Context, company, loginID, loginIDHash string) (record.Account, error) {
	return ask(ctx, s.link, &s.mu, "accounts.by_login_id", func() (record.Account, error) {
		for _, r := range s.rows {
			if r.Company == company && slices.ContainsFunc(r.loginIDs, func(id [2]string) bool { return id[1] == loginID }) {
				return s.load(r), nil
			}
		}
		counts := s.counts(record.FailureKey{Company: company, LoginID: loginIDHash})
		return record.Account{CompanyGeneration: s.generations[company], FailureCounts: counts}, record.ErrNotFound
	})
}

func (s accounts) ByID(ctx context.Context, company string, id int64) (record.Account, error) {
	return s.one(ctx, "by_id", func(r *row) bool { return r.Company == company && r.ID == id })
}

func (s accounts) ByMnemocode(ctx context.Context, company, mnemocode string) (record.Account, error) {
	return s.one(ctx, "by_mnemocode", func(r *row) bool { return r.Company == company && r.Mnemocode == mnemocode })
}

func (s accounts) ByIdentity(ctx context.Context, company string, identity record.Identity) (record.Account, error) {
	return s.one(ctx, "by_identity", func(r *row) bool { return r.Company == company && slices.Contains(r.Identities, identity) })
}

// refuse returns the TakenError or SpentError of an account that is about to be stored.
func (s *Accounts) refuse(a record.Account, loginIDs [][2]string) error {
	field := ""
	taken := func(name string, is func(*row) bool) {
		for _, r := range s.rows {
			if field == "" && r.Company == a.Company && r.ID != a.ID && is(r) {
				field = name
			}
		}
	}
	taken("profile_mnemocode", func(r *row) bool { return r.Mnemocode == a.Mnemocode })
	for _, id := range loginIDs {
		taken(id[0], func(r *row) bool {
			return slices.ContainsFunc(r.loginIDs, func(other [2]string) bool { return other[1] == id[1] })
		})
	}
	for _, i := range a.Identities {
		taken("oauth_identities", func(r *row) bool { return slices.Contains(r.Identities, i) })
	}
	for _, p := range a.NewPasskeys {
		taken("credential", func(r *row) bool { return r.passkey(p.Credential) >= 0 })
	}
	if field != "" {
		return &record.TakenError{Field: field}
	}
	for _, spend := range a.Spends {
		if _, again := s.spent[spend.Hash]; again {
			return &record.SpentError{Field: spend.Field}
		}
	}
	return nil
}

// put stores an account and what comes with it.
func (s *Accounts) put(r *row, a record.Account, loginIDs [][2]string) {
	events := a.Outbox
	for _, spend := range a.Spends {
		s.spent[spend.Hash] = spend.Until
	}
	a.Storing, a.FailureCounts = record.Storing{}, nil
	a.Identities = slices.Clone(a.Identities)
	slices.SortFunc(a.Identities, record.Identity.Compare)
	a.PhoneVerified, a.EmailVerified, a.Updated = stored(a.PhoneVerified), stored(a.EmailVerified), stored(a.Updated)
	r.Account, r.loginIDs = a, loginIDs
	s.insert(a.Company, a.ID, events)
}

func loginIDsOf(a record.Account) (ids [][2]string) {
	for field, id := range record.LoginIDs(a) {
		ids = append(ids, [2]string{field, id})
	}
	return ids
}

func (s accounts) Create(ctx context.Context, now time.Time, a record.Account) (int64, error) {
	return ask(ctx, s.link, &s.mu, "accounts.create", func() (int64, error) {
		a.ID, a.Generation, a.InactiveGeneration, a.CompanyGeneration = 0, now.Unix(), 0, 0
		ids := loginIDsOf(a)
		if err := s.refuse(a, ids); err != nil {
			return 0, err
		}
		a.ID = s.next()
		a.Created, a.Updated = stored(cmp.Or(a.Created, now)), now
		r := &row{backup: slices.Compact(slices.Sorted(slices.Values(a.NewBackupCodes)))}
		for _, p := range a.NewPasskeys {
			r.add(a.ID, p)
		}
		accepted := a.Accepted
		a.Accepted = nil
		s.rows[a.ID] = r
		s.put(r, a, ids)
		r.accept(accepted)
		return a.ID, nil
	})
}

func (s accounts) Update(ctx context.Context, company string, id int64, change func(*record.Account) (bool, error)) (record.Account, error) {
	return ask(ctx, s.link, &s.mu, "accounts.update", func() (record.Account, error) {
		r, err := s.row(company, id)
		if err != nil {
			return record.Account{}, err
		}
		before, a := s.load(r), s.load(r)
		ends, err := change(&a)
		if err != nil {
			return record.Account{}, refusal{err}
		}
		a.ID, a.Company, a.Created, a.Accepted = id, company, before.Created, r.Accepted
		a.SetGeneration(before, ends)
		ids := r.loginIDs
		if !record.SameLoginIDs(before, a) {
			ids = loginIDsOf(a)
		}
		if err := s.refuse(a, ids); err != nil {
			return record.Account{}, err
		}
		if ends {
			s.revokeLater(company, id, a.Generation, a.Keep)
			if a.PasswordHash != "" && a.PasswordHash != before.PasswordHash {
				delete(s.failures[record.FailureKey{Company: company, Account: id}], record.WrongPasswords)
			}
		}
		s.put(r, a, ids)
		return s.load(r), nil
	})
}

// A refusal is the error of a change, which the caller of Update gets whatever it is.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func (s *Accounts) revokeLater(company string, id, generation int64, keep record.TokenHash) {
	if of := (account{company, id}); s.pending[of].Generation < generation {
		s.pending[of] = record.Revocation{Company: company, Account: id, Generation: generation, Keep: keep}
	}
}

func (s accounts) SetPassword(ctx context.Context, now time.Time, a record.Account, hash string, keep record.TokenHash, events ...record.OutboxEvent) error {
	return s.do(ctx, "set_password", func() error {
		r, err := s.row(a.Company, a.ID)
		if err != nil || !s.load(r).SameGenerations(a) {
			return record.ErrConflict
		}
		r.PasswordHash, r.MustSetPassword, r.Updated = hash, false, stored(now)
		r.Generation++
		delete(s.failures[record.FailureKey{Company: a.Company, Account: a.ID}], record.WrongPasswords)
		s.revokeLater(a.Company, a.ID, r.Generation, keep)
		s.insert(a.Company, a.ID, events)
		return nil
	})
}

func (r *row) accept(accepted []record.Acceptance) {
	for _, a := range accepted {
		a.At = stored(a.At)
		if slices.ContainsFunc(r.Accepted, func(old record.Acceptance) bool { return old.Code == a.Code && a.At.Before(old.At) }) {
			continue
		}
		r.Accepted = append(slices.DeleteFunc(slices.Clone(r.Accepted), func(old record.Acceptance) bool { return old.Code == a.Code }), a)
	}
	slices.SortFunc(r.Accepted, record.Acceptance.Compare)
}

func (s accounts) Accept(ctx context.Context, company string, id int64, accepted []record.Acceptance, events ...record.OutboxEvent) error {
	return s.with(ctx, "accept", company, id, func(r *row) error {
		r.accept(accepted)
		s.insert(company, id, events)
		return nil
	})
}

// listOf returns the list of an account, or none if there is no such account.
func listOf[T any](ctx context.Context, s accounts, what, company string, id int64, list func(*row) []T) ([]T, error) {
	return ask(ctx, s.link, &s.mu, "accounts."+what, func() ([]T, error) {
		r, err := s.row(company, id)
		if err != nil {
			return nil, nil
		}
		return list(r), nil
	})
}

// with calls change with a row, or returns ErrNotFound.
func (s accounts) with(ctx context.Context, what, company string, id int64, change func(*row) error) error {
	return s.do(ctx, what, func() error {
		r, err := s.row(company, id)
		if err != nil {
			return err
		}
		return change(r)
	})
}

// withPresent is with for the account in a.Generation and a.CompanyGeneration.
func (s accounts) withPresent(ctx context.Context, what string, a record.Account, change func(*row) error) error {
	return s.with(ctx, what, a.Company, a.ID, func(r *row) error {
		if !s.load(r).SameGenerations(a) {
			return record.ErrNotFound
		}
		return change(r)
	})
}

func (s accounts) Delete(ctx context.Context, company string, id int64, match func(record.Account) bool, events ...record.OutboxEvent) error {
	return s.with(ctx, "delete", company, id, func(r *row) error {
		if match != nil && !match(s.load(r)) {
			return record.ErrConflict
		}
		s.insert(company, id, events)
		delete(s.rows, id)
		maps.DeleteFunc(s.failures, func(key record.FailureKey, _ map[record.FailureKind]failure) bool { return key.Account == id })
		s.revokeLater(company, id, record.AllGenerations, record.TokenHash{})
		return nil
	})
}

// Backup codes

func (s accounts) SetBackupCodes(ctx context.Context, a record.Account, hashes []string, events ...record.OutboxEvent) error {
	return s.withPresent(ctx, "set_backup_codes", a, func(r *row) error {
		if len(r.backup) > 0 && a.OldBackupCodes != nil && !slices.Contains(a.OldBackupCodes, r.backup[0]) {
			return record.ErrNotFound
		}
		r.backup = slices.Compact(slices.Sorted(slices.Values(hashes)))
		s.insert(a.Company, a.ID, events)
		return nil
	})
}

func (s accounts) BackupCodes(ctx context.Context, company string, id int64) ([]string, error) {
	return listOf(ctx, s, "backup_codes", company, id, func(r *row) []string { return slices.Clone(r.backup) })
}

func (s accounts) UseBackupCode(ctx context.Context, company string, id int64, hash string) error {
	return s.do(ctx, "use_backup_code", func() error {
		r, err := s.row(company, id)
		if err != nil || !slices.Contains(r.backup, hash) {
			return record.ErrConflict
		}
		r.backup = slices.DeleteFunc(slices.Clone(r.backup), func(h string) bool { return h == hash })
		return nil
	})
}

// Passkeys

// passkey returns the position of a passkey, or -1.
func (r *row) passkey(credential []byte) int {
	return slices.IndexFunc(r.passkeys, func(p record.Passkey) bool { return bytes.Equal(p.Credential, credential) })
}

func (r *row) add(id int64, p record.Passkey) {
	p.Account, p.Created, p.LastUsed = id, stored(p.Created), stored(p.LastUsed)
	r.passkeys = append(r.passkeys, p)
	slices.SortStableFunc(r.passkeys, func(a, b record.Passkey) int {
		return cmp.Or(a.Created.Compare(b.Created), bytes.Compare(a.Credential, b.Credential))
	})
}

// holder returns the account that has a passkey, and its position there.
func (s *Accounts) holder(company string, credential []byte) (*row, int, error) {
	for _, r := range s.rows {
		if i := r.passkey(credential); i >= 0 && r.Company == company {
			return r, i, nil
		}
	}
	return nil, 0, record.ErrNotFound
}

func (s accounts) AddPasskey(ctx context.Context, now time.Time, a record.Account, p record.Passkey, events ...record.OutboxEvent) error {
	return s.withPresent(ctx, "add_passkey", a, func(r *row) error {
		if len(r.passkeys) >= record.MaxPasskeys {
			return record.ErrConflict
		}
		if _, _, err := s.holder(a.Company, p.Credential); err == nil {
			return &record.TakenError{Field: "credential"}
		}
		r.add(r.ID, p)
		r.Updated = stored(now)
		s.insert(a.Company, r.ID, events)
		return nil
	})
}

func (s accounts) Passkeys(ctx context.Context, company string, id int64) ([]record.Passkey, error) {
	return listOf(ctx, s, "passkeys", company, id, func(r *row) []record.Passkey { return slices.Clone(r.passkeys) })
}

func (s accounts) Passkey(ctx context.Context, company string, credential []byte) (record.Passkey, error) {
	return ask(ctx, s.link, &s.mu, "accounts.passkey", func() (record.Passkey, error) {
		r, i, err := s.holder(company, credential)
		if err != nil {
			return record.Passkey{}, err
		}
		return r.passkeys[i], nil
	})
}

func (s accounts) CompaniesWithPasskey(ctx context.Context, credential []byte) ([]string, error) {
	return ask(ctx, s.link, &s.mu, "accounts.companies_with_passkey", func() (companies []string, _ error) {
		for _, r := range s.rows {
			if r.passkey(credential) >= 0 {
				companies = append(companies, r.Company)
			}
		}
		return companies, nil
	})
}

func (s accounts) UsePasskey(ctx context.Context, now time.Time, company string, credential []byte, signCount uint32, backedUp bool) error {
	return s.do(ctx, "use_passkey", func() error {
		r, i, err := s.holder(company, credential)
		if err != nil {
			return err
		}
		p := &r.passkeys[i]
		if signCount <= p.SignCount && signCount+p.SignCount > 0 {
			return record.ErrConflict
		}
		p.SignCount, p.BackedUp, p.LastUsed = signCount, backedUp, stored(now)
		return nil
	})
}

func (s accounts) RenamePasskey(ctx context.Context, company string, id int64, credential []byte, name string) error {
	return s.with(ctx, "rename_passkey", company, id, func(r *row) error {
		i := r.passkey(credential)
		if i < 0 {
			return record.ErrNotFound
		}
		r.passkeys[i].Name = name
		return nil
	})
}

func (s accounts) DeletePasskey(ctx context.Context, now time.Time, a record.Account, credential []byte, keep record.TokenHash, events ...record.OutboxEvent) (int64, error) {
	return ask(ctx, s.link, &s.mu, "accounts.delete_passkey", func() (int64, error) {
		r, err := s.row(a.Company, a.ID)
		if err != nil || r.passkey(credential) < 0 {
			return 0, record.ErrNotFound
		}
		if a.Generation != 0 && !s.load(r).SameGenerations(a) {
			return 0, record.ErrConflict
		}
		if r.Phone == "" && (r.PasswordHash == "" || !r.HasLoginID()) && len(r.Identities) == 0 && len(r.passkeys) == 1 {
			return 0, record.ErrLastPasskey
		}
		i := r.passkey(credential)
		r.passkeys = slices.Delete(slices.Clone(r.passkeys), i, i+1)
		r.Generation++
		r.Updated = stored(now)
		s.revokeLater(a.Company, a.ID, r.Generation, keep)
		s.insert(a.Company, a.ID, events)
		return r.Generation, nil
	})
}

// Failure counts

func (s *Accounts) counts(key record.FailureKey) record.Failures {
	var counts record.Failures
	for kind, f := range s.failures[key] {
		if counts == nil {
			counts = record.Failures{}
		}
		counts[kind] = f.FailureCount
	}
	return counts
}

func (s accounts) UpdateFailures(ctx context.Context, now time.Time, key record.FailureKey, kind record.FailureKind, change func(*record.FailureCount) error) error {
	return s.do(ctx, "update_failures", func() error {
		f := s.failures[key][kind].FailureCount
		if err := change(&f); err != nil {
			return refusal{err}
		}
		if _, err := s.row(key.Company, key.Account); err != nil && key.Account != 0 {
			return nil
		}
		if s.failures[key] == nil {
			s.failures[key] = map[record.FailureKind]failure{}
		}
		events := f.Outbox
		f.Outbox, f.Until = nil, stored(f.Until)
		s.failures[key][kind] = failure{f, now}
		if f.Count == 0 && f.Until.IsZero() {
			delete(s.failures[key], kind)
		}
		s.insert(key.Company, key.Account, events)
		return nil
	})
}

func (s accounts) FailureCounts(ctx context.Context, key record.FailureKey) (record.Failures, error) {
	return ask(ctx, s.link, &s.mu, "accounts.failure_counts", func() (record.Failures, error) {
		counts := record.Failures{}
		maps.Copy(counts, s.counts(key))
		return counts, nil
	})
}

// Pending revocations

func (s accounts) NewCompanyGeneration(ctx context.Context, company string) (record.Revocation, error) {
	return ask(ctx, s.link, &s.mu, "accounts.new_company_generation", func() (record.Revocation, error) {
		s.generations[company]++
		s.revokeLater(company, 0, s.generations[company], record.TokenHash{})
		return s.pending[account{company, 0}], nil
	})
}

func (s accounts) PendingRevocations(ctx context.Context, after record.Revocation, limit int) ([]record.Revocation, error) {
	return ask(ctx, s.link, &s.mu, "accounts.pending_revocations", func() (all []record.Revocation, _ error) {
		order := func(a, b record.Revocation) int {
			return cmp.Or(strings.Compare(a.Company, b.Company), cmp.Compare(a.Account, b.Account))
		}
		for _, e := range slices.SortedFunc(maps.Values(s.pending), order) {
			if order(e, after) > 0 && len(all) < limit {
				all = append(all, e)
			}
		}
		return all, nil
	})
}

func (s accounts) RevocationDone(ctx context.Context, done record.Revocation) error {
	return s.do(ctx, "revocation_done", func() error {
		if of := (account{done.Company, done.Account}); s.pending[of].Generation == done.Generation && s.pending[of].Token == done.Token {
			delete(s.pending, of)
		}
		return nil
	})
}

// Companies, seeds, secrets and keys

func (s accounts) SetSeeded(ctx context.Context, company, mnemocode string) error {
	return s.do(ctx, "set_seeded", func() error {
		s.seeds[[2]string{company, mnemocode}] = true
		return nil
	})
}

func (s accounts) Seeded(ctx context.Context, company, mnemocode string) (bool, error) {
	return ask(ctx, s.link, &s.mu, "accounts.seeded", func() (bool, error) { return s.seeds[[2]string{company, mnemocode}], nil })
}

func (s accounts) Secrets(ctx context.Context) ([]record.Secret, error) {
	return ask(ctx, s.link, &s.mu, "accounts.secrets", func() ([]record.Secret, error) {
		if len(s.secrets) == 0 {
			s.secrets = []record.Secret{{Value: make([]byte, 32)}}
			rand.Read(s.secrets[0].Value)
		}
		return slices.Clone(s.secrets), nil
	})
}

func (s accounts) SigningKeys(ctx context.Context, company string) ([]record.SigningKey, error) {
	return ask(ctx, s.link, &s.mu, "accounts.signing_keys", func() ([]record.SigningKey, error) { return slices.Clone(s.keys[company]), nil })
}

func (s accounts) AddSigningKey(ctx context.Context, company string, key record.SigningKey) error {
	return s.do(ctx, "add_signing_key", func() error {
		if slices.ContainsFunc(s.keys[company], func(old record.SigningKey) bool { return old.Number == key.Number }) {
			return record.ErrConflict
		}
		key.Created = stored(key.Created)
		s.keys[company] = append(s.keys[company], key)
		slices.SortFunc(s.keys[company], func(a, b record.SigningKey) int { return cmp.Compare(a.Number, b.Number) })
		return nil
	})
}

func (s accounts) Count(ctx context.Context) (int, error) {
	return ask(ctx, s.link, &s.mu, "accounts.count", func() (int, error) { return len(s.rows), nil })
}

func (s accounts) Sweep(ctx context.Context, now time.Time) error {
	return s.do(ctx, "sweep", func() error {
		for key, kinds := range s.failures {
			maps.DeleteFunc(kinds, func(_ record.FailureKind, f failure) bool {
				return key.Account == 0 && f.changed.Before(now.Add(-24*time.Hour)) && !f.Until.After(now)
			})
		}
		maps.DeleteFunc(s.spent, func(_ [32]byte, until time.Time) bool { return until.Before(now) })
		for _, q := range s.queues {
			if q.due.After(now.Add(record.MaxDue)) {
				q.due = stored(now)
			}
		}
		return nil
	})
}

// Record keeps nothing: nobody simulates the history.
func (s accounts) Record(ctx context.Context, _ []record.Event) error {
	return s.do(ctx, "record", func() error { return nil })
}

// Outbox

// insert stores events of an account. They join the queue in which some of the account's
// already wait.
func (s *Accounts) insert(company string, id int64, events []record.OutboxEvent) {
	for _, e := range events {
		name := [2]string{company, e.Queue}
		latest := int64(0)
		for other, q := range s.queues {
			for i, waiting := range q.Events {
				if q.accounts[i] == id && other[0] == company && waiting.Number > latest {
					name, latest = other, waiting.Number
				}
			}
		}
		q := s.queues[name]
		if q == nil {
			q = &queue{OutboxQueue: record.OutboxQueue{Company: company, Name: name[1]}, due: stored(e.At)}
			s.queues[name] = q
		}
		e.Number, e.At, e.Queue = s.next(), stored(e.At), ""
		q.Events, q.accounts = append(q.Events, e), append(q.accounts, id)
	}
}

// waiting returns the queues, those that were due first first.
func (s *Accounts) waiting() []*queue {
	return slices.SortedFunc(maps.Values(s.queues), func(a, b *queue) int {
		return cmp.Or(a.due.Compare(b.due), strings.Compare(a.Company, b.Company), strings.Compare(a.Name, b.Name))
	})
}

func (s accounts) Due(ctx context.Context, now time.Time) ([]string, error) {
	return ask(ctx, s.link, &s.mu, "accounts.due", func() (companies []string, _ error) {
		for _, q := range s.waiting() {
			if !q.due.After(now) {
				companies = append(companies, q.Company)
			}
		}
		slices.Sort(companies)
		return slices.Compact(companies), nil
	})
}

func (s accounts) Claim(ctx context.Context, now, until time.Time, company string, limit int) ([]record.OutboxQueue, error) {
	return ask(ctx, s.link, &s.mu, "accounts.claim", func() (claimed []record.OutboxQueue, _ error) {
		for _, q := range s.waiting() {
			if q.Company == company && !q.due.After(now) && len(claimed) < limit {
				q.due, q.Claim = stored(until), fmt.Sprint(s.next())
				c := q.OutboxQueue
				c.Until, c.Events = until, slices.Clone(q.Events[:min(len(q.Events), record.ClaimedEvents)])
				claimed = append(claimed, c)
			}
		}
		return claimed, nil
	})
}

func (s accounts) Acknowledge(ctx context.Context, c record.OutboxQueue, delivered []int64, due time.Time, tries int) error {
	return s.do(ctx, "acknowledge", func() error {
		name := [2]string{c.Company, c.Name}
		q := s.queues[name]
		if q == nil {
			return nil
		}
		var events []record.OutboxEvent
		var ids []int64
		for i, e := range q.Events {
			if !slices.Contains(delivered, e.Number) {
				events, ids = append(events, e), append(ids, q.accounts[i])
			}
		}
		q.Events, q.accounts = events, ids
		if q.Claim == c.Claim {
			q.due, q.Tries, q.Claim = stored(due), tries, ""
		}
		if q.Claim == "" && len(q.Events) == 0 {
			delete(s.queues, name)
		}
		return nil
	})
}

func (s accounts) Backlogs(ctx context.Context) ([]record.Backlog, error) {
	return ask(ctx, s.link, &s.mu, "accounts.backlogs", func() ([]record.Backlog, error) {
		of := map[string]record.Backlog{}
		for _, q := range s.queues {
			for _, e := range q.Events {
				b, ok := of[q.Company]
				if !ok || e.At.Before(b.Oldest) {
					b.Oldest = e.At
				}
				of[q.Company] = record.Backlog{Company: q.Company, Events: b.Events + 1, Oldest: b.Oldest}
			}
		}
		return slices.SortedFunc(maps.Values(of), func(a, b record.Backlog) int { return strings.Compare(a.Company, b.Company) }), nil
	})
}
