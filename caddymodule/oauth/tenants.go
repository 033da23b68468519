package oauth

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Microsoft's issuers can stand for many tenants. Their ID tokens are issued by one of
// them: the word in the address, or {tenantid} in the document, stands for its id.
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
	for _, id := range p.Tenants {
		if !tenantForm.MatchString(id) && !(id == anyTenant && len(p.Tenants) == 1) {
			return fmt.Errorf("tenants: %q is not a tenant's id like 9188040d-6c67-4c5b-b112-36a304b66dad; copy the directory (tenant) ID, in lower case, or write any alone", id)
		}
	}
	return nil
}
