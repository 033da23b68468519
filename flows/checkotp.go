package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type checkOTPRequest struct {
	OTP string `json:"otp" max:"16"`
	// A backup code instead of the one-time code, with or without the dash.
	BackupCode        string     `json:"backup_code" max:"64"`
	AcceptDisclaimers wire.Codes `json:"accept_disclaimers" max:"129"`
	RememberDevice    bool       `json:"remember_device"`
}

func (r *checkOTPRequest) mayBeCode(length int) bool {
	_, ok := typed.OTP(r.OTP, length)
	return ok && r.BackupCode == ""
}

// checkOTP checks the code of an SMS or app, or a backup code (interface, Endpoints 3).
func (s *Service) checkOTP(ctx context.Context, c *session.Call, req *checkOTPRequest) (Reply, error) {
	if (req.OTP == "") == (req.BackupCode == "") {
		return Reply{}, wire.Invalid("Send exactly one of otp and backup_code.")
	}
	var st session.Step
	var err error
	if req.OTP != "" {
		st, err = c.TryCode(ctx, req.OTP)
	} else {
		st, err = c.TryBackupCode(ctx, req.BackupCode)
	}
	c.RecordSecondFactor(ctx, st.Account, err)
	if err != nil {
		return Reply{}, err
	}
	if st.Accepted, err = c.Accept(ctx, st.Account, req.AcceptDisclaimers); err != nil {
		return Reply{}, c.AddressFirst(ctx, err)
	}
	c.Remember(req.RememberDevice)
	return afterSecondFactor(ctx, c, st)
}

type recoveryCheckOTPRequest struct {
	OTP string `json:"otp" max:"16" need:"y"`
}

func (r *recoveryCheckOTPRequest) mayBeCode(length int) bool {
	_, ok := typed.OTP(r.OTP, length)
	return ok
}

// recoveryCheckOTP checks the code of a recovery by phone (interface, Endpoints 11).
func (s *Service) recoveryCheckOTP(ctx context.Context, c *session.Call, req *recoveryCheckOTPRequest) (Reply, error) {
	st, err := c.TryCode(ctx, req.OTP)
	if err != nil {
		return Reply{}, err
	}
	st.State = record.RecoveryPassword
	return c.Enter(ctx, st)
}
