package manage

import (
	"context"
	"crypto/rand"
	"encoding/base32"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A backup code is 50 random bits in base32 (contract, section 5). Base32 has no 0 and 1,
// which users could mistake for O and l.
const (
	backupCodes      = 10
	backupCodeLength = 10
)

// NewBackupCodes replaces the account's backup codes. It returns the new ones in the form
// ABCDE-FGHIJ. They can't be read again later, because only hashes are stored. A revocation
// that comes while they are hashed leaves no new codes: the errors are ErrChanged and
// ErrNoSessionToKeep. Of calls at once, one succeeds, because the codes of the others would
// not work.
func (ad *Admin) NewBackupCodes(ctx context.Context, mnemocode string) ([]string, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return nil, err
	}
	old, err := ad.BackupCodeHashes(ctx, a)
	if err != nil {
		return nil, err
	}
	a.OldBackupCodes = append([]string{}, old...) // not nil
	codes := make([]string, backupCodes)
	normalized := make([]string, backupCodes)
	for i := range codes {
		var b [8]byte
		rand.Read(b[:])
		code := base32.StdEncoding.EncodeToString(b[:])[:backupCodeLength]
		codes[i] = code[:backupCodeLength/2] + "-" + code[backupCodeLength/2:]
		normalized[i] = code
	}
	turn := limits.TurnOf(ad.Company.Code, ad.Address)
	turn.Patient = !ad.isUser()
	hashes, err := ad.Hasher.HashSet(ctx, turn, ad.Company.Password.Argon2id, normalized)
	if err != nil {
		return nil, wire.Unavailable("hashing the backup codes", err)
	}
	if err := ad.stillIn(ctx, a); err != nil {
		return nil, err
	}
	replaced := ad.event(record.AccountBackupCodes, a)
	if err := ad.storeCodes(ctx, a, hashes, replaced); err != nil {
		return nil, err
	}
	ad.emit(ctx, replaced)
	ad.tell(ctx, a, message.NoticeBackupCodesMade)
	return codes, nil
}

func (ad *Admin) storeCodes(ctx context.Context, a record.Account, hashes []string, replaced record.Event) error {
	events := background.OutboxEvents(ctx, ad.Company, replaced)
	return adminError("storing the backup codes", orChanged(ad.Accounts.SetBackupCodes(ctx, a, hashes, events...)))
}

// BackupCodeHashes returns the hashes of an account's remaining backup codes.
func (ad *Admin) BackupCodeHashes(ctx context.Context, a record.Account) ([]string, error) {
	if a.BackupCodes == 0 {
		return nil, nil
	}
	hashes, err := ad.Accounts.BackupCodes(ctx, a.Company, a.ID)
	return hashes, adminError("loading the backup codes", err)
}
