package oauth

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
)

// Microsoft's issuers can stand for many tenants. Their ID tokens are issued by one of
// them: the word in the address, or {tenantid} in the document, stands for its id.
//
// A user is known by the sub alone, not by the tenant and the sub. So this relies on
// Microsoft, which makes each sub itself, to give none to two users.
const (
	tenantID  = "{tenantid}"
	anyTenant = "any"
)

var (
	manyTenants   = regexp.MustCompile(`^(https?://[^/]+/)(?:common|organizations|consumers)(/|$)`)
	microsoftHost = regexp.MustCompile(`^https?://[^/]+\.(?:microsoftonline\.com|microsoftonline\.us|microsoftonline\.cn|windows\.net)/`)
	tenantForm    = regexp.MustCompile(`^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// issuerTemplate returns the issuer with {tenantid} where the tenant's id will stand.
func (p *OIDC) issuerTemplate() string {
	if p.Tenants == nil {
		return p.Issuer
	}
	return manyTenants.ReplaceAllString(p.Issuer, "${1}"+tenantID+"${2}")
}

// tenantOf returns the tenant's id in an issuer that is otherwise the one that is
// configured, or "".
func (p *OIDC) tenantOf(issuer string) string {
	before, after, _ := strings.Cut(p.template, tenantID)
	id, begins := strings.CutPrefix(issuer, before)
	id, ends := strings.CutSuffix(id, after)
	if !begins || !ends || !tenantForm.MatchString(id) {
		return ""
	}
	return id
}

// An issuerKey is a public key that Microsoft may have for one tenant alone.
type issuerKey struct {
	key    crypto.PublicKey
	issuer any // a string, with {tenantid} if it is for all tenants; nil if it is not named
}

// isKeyOf reports whether a verified ID token of the issuer is signed with a key that is the
// issuer's, or names none. Otherwise a key of one tenant could sign for another.
func (p *OIDC) isKeyOf(ctx context.Context, s *keySet, issuer, raw string) bool {
	var its oidc.StaticKeySet
	for _, k := range *s.last.Load() {
		if k.issuer == nil || k.issuer == issuer || k.issuer == p.template {
			its.PublicKeys = append(its.PublicKeys, k.key)
		}
	}
	_, err := its.VerifySignature(ctx, raw)
	return err == nil
}

// checkTenants refuses an issuer with which no login, or anybody's login, would succeed.
func (p *OIDC) checkTenants() error {
	many := strings.Contains(p.issuerTemplate(), tenantID)
	if p.Tenants == nil {
		if many || microsoftHost.MatchString(p.Issuer) && manyTenants.MatchString(p.Issuer) {
			return errors.New("tenants is missing, since this issuer stands for many; name the ids of yours, write any, or write one tenant's id in the issuer")
		}
		return nil
	}
	if !many {
		return errors.New("tenants: this issuer is that of one tenant; leave tenants out, or write " + tenantID + " in place of the tenant's id")
	}
	if p.LinkVerifiedEmail {
		return errors.New("link_verified_email does not go with tenants, because a tenant's administrator chooses the emails of its users; remove one of them")
	}
	if len(p.Tenants) == 0 { // as a program may write it in JSON
		return errors.New("tenants: the list is empty; name the ids of yours, or write any")
	}
	for _, id := range p.Tenants {
		if !tenantForm.MatchString(id) && !(id == anyTenant && len(p.Tenants) == 1) {
			return fmt.Errorf("tenants: %q is not a tenant's id like 9188040d-6c67-4c5b-b112-36a304b66dad; copy the directory (tenant) ID, in lower case, or write any alone", id)
		}
	}
	return nil
}
