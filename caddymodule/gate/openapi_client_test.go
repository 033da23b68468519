package gate

import (
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// clientConfig is the operation that tells what a client must know before a login.
func (d *documentParts) clientConfig() object {
	d.schemas.AddOnce("ClientConfig", func() any { return clientConfigSchema })
	d.examples.AddOnce("ClientConfig", func() any { return object{{"value", clientConfigExample}} })
	success := object{
		{"description", "What the company asks for."},
		{"content", jsonContent(ref("schemas", "ClientConfig"), member{"examples", object{{"ClientConfig", ref("examples", "ClientConfig")}}})},
	}
	return object{
		{"operationId", "client_config"},
		{"tags", []string{"login"}},
		{"summary", "Get what a client must know before a login"},
		{"description", clientConfigDescription},
		{"security", []any{securedBy("apiKey")}},
		{"responses", d.answers(success, []*wire.Error{wire.ErrAPIKeyMissing, wire.ErrAPIKeyInvalid, wire.ErrUnavailable, wire.ErrService})},
	}
}

const clientConfigDescription = "How the company's users log in: its rules for passwords, its captcha, its ways of recovery, its OAuth providers and its disclaimers. " +
	"Nothing of it is secret, and it differs for no user. A login with a provider begins at authorize_url, with response_type=code, the client_id, the scope, " +
	"one of the redirect URIs that the operator lists, a state, for OpenID providers a nonce and, where pkce is true, a code_challenge."

var clientConfigSchema = object{
	{"type", "object"},
	{"description", "What a client must know before a login."},
	{"required", []string{"status", "password", "captcha", "recovery", "oauth", "disclaimers", "session"}},
	{"properties", object{
		{"status", object{{"type", "string"}, {"enum", []any{"success"}}}},
		{"password", object{
			{"type", "object"}, {"description", "What a new password must be."}, {"required", []string{"min_length", "regex", "description"}},
			{"properties", object{
				{"min_length", object{{"type", "integer"}, {"description", "How many characters it has at least."}, {"minimum", 1}, {"maximum", 128}}},
				{"regex", object{{"type", []any{"string", "null"}}, {"description", "What it must match, in RE2 syntax; null for no such rule."}}},
				{"description", object{{"type", "string"}, {"description", "All that it must be, for people: also what no regular expression says."}}},
				{"regex_description", object{{"type", "string"}, {"description", "What the operator says of the regular expression, for who says the rest in another language."}}},
			}},
		}},
		{"captcha", object{
			{"type", "object"}, {"description", "Where a captcha_response comes from."}, {"required", []string{"type"}},
			{"properties", object{
				{"type", object{{"type", "string"}, {"description", "turnstile, hcaptcha, recaptcha, siteverify, pow, static, off, or the name of a module of the operator's own."}}},
				{"site_key", object{{"type", "string"}, {"description", "The key for the provider's widget, where the operator gave it."}}},
				{"bits", object{{"type", "integer"}, {"description", "Of pow: how much work it is. GET captcha gives challenges."}, {"minimum", 8}, {"maximum", 30}}},
			}},
		}},
		{"recovery", object{
			{"type", "array"}, {"description", "How users may recover their access; the first is the default."}, {"items", object{{"type", "string"}, {"enum", methods}}},
		}},
		{"oauth", object{{"type", "array"}, {"description", "The company's OAuth providers."}, {"items", clientProviderSchema}}},
		{"disclaimers", object{{"type", "array"}, {"description", "The legal texts that users must accept."}, {"items", ref("schemas", "Disclaimer")}}},
		{"session", object{
			{"type", "object"}, {"description", "How long authorized sessions last."}, {"required", []string{"idle", "lifetime"}},
			{"properties", object{
				{"idle", object{{"type", "integer"}, {"description", "Seconds without a request."}, {"minimum", 1}}},
				{"lifetime", object{{"type", "integer"}, {"description", "Seconds, whatever happens."}, {"minimum", 1}}},
			}},
		}},
	}},
}

var clientProviderSchema = object{
	{"type", "object"}, {"required", []string{"provider_id", "name", "authorize_url", "client_id", "scope", "pkce"}},
	{"properties", object{
		{"provider_id", object{{"type", "integer"}, {"description", "As POST auth/oauth takes it."}, {"minimum", 1}, {"maximum", 5}}},
		{"name", object{{"type", "string"}, {"description", "What users know it by."}}},
		{"authorize_url", object{
			{"type", []any{"string", "null"}},
			{"description", "Where the browser is sent. null: the operator did not say, or the provider could not be asked just now."},
		}},
		{"client_id", object{{"type", "string"}}},
		{"scope", object{{"type", "string"}, {"description", "What to ask for, as it is sent; empty for no such parameter."}}},
		{"pkce", object{{"type", "boolean"}, {"description", "Send a code_challenge with the method S256, and then code_verifier to POST auth/oauth."}}},
	}},
}

var clientConfigExample = object{
	{"status", "success"},
	{"password", object{{"min_length", 8}, {"regex", nil}, {"description", "8 to 128 characters. " +
		"Not a commonly used password. Not just the account's own login ids or the company's name."}}},
	{"captcha", object{{"type", "turnstile"}, {"site_key", "0x4AAAAAAAB"}}},
	{"recovery", []any{tenant.ByPhone, tenant.ByMail}},
	{"oauth", []any{object{
		{"provider_id", 1}, {"name", "Example ID"}, {"authorize_url", "https://id.example.com/authorize"},
		{"client_id", "acme-web"}, {"scope", "openid email"}, {"pkce", true},
	}}},
	{"disclaimers", []any{disclaimerExample}},
	{"session", object{{"idle", 3600}, {"lifetime", 86400}}},
}
