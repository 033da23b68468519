package typed

import (
	"net/mail"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/nyaruka/phonenumbers"
	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"

	"github.com/mnemogate/mnemogate/flows/password"
)

// Phone returns a phone as E.164. libphonenumber decides which number a text means, and
// whether it is possible in its country. Without + and 00, it is a number of the region
// (ISO 3166-1 alpha-2), as people dial it there. Phone returns "" if s is no such phone.
func Phone(s, region string) string {
	digits := dialled(s)
	if strings.HasPrefix(digits, "+") {
		region = ""
	} else if region == "" {
		return ""
	}
	// A number may have a national prefix twice. E.164 is what stays the same.
	for range 4 {
		if len(digits) < 4 || len(digits) > 20 { // a short number is dialled in one network only
			return ""
		}
		number, err := phonenumbers.Parse(digits, region)
		if err != nil || phonenumbers.IsPossibleNumberWithReason(number) != phonenumbers.IS_POSSIBLE {
			return ""
		}
		e164 := phonenumbers.Format(number, phonenumbers.E164)
		if e164 == digits {
			return internationalNumber.FindString(e164)
		}
		digits, region = e164, ""
	}
	return ""
}

// IsAmbiguous reports whether a text is one phone as people dial it in the region, and another
// if it has lost its +, as in a spreadsheet: in Germany, 491701234567. A national number that
// may be written without 0, as mobiles are, is not ambiguous.
func IsAmbiguous(s, region string) bool {
	digits := dialled(s)
	national, err := phonenumbers.Parse(digits, region)
	if err != nil || phonenumbers.GetNddPrefixForRegion(region, true) != "0" || phonenumbers.GetNumberType(national) == phonenumbers.MOBILE {
		return false
	}
	international, err := phonenumbers.Parse("+"+digits, "")
	return err == nil && phonenumbers.IsValidNumber(international) &&
		international.GetCountryCode() == national.GetCountryCode() && international.GetNationalNumber() != national.GetNationalNumber()
}

var (
	internationalNumber = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`) // ITU-T E.164
	beginning           = regexp.MustCompile(`^\+[1-9][0-9]{0,6}$`)
)

// PhonePrefix returns the beginning of international numbers, such as +370, without what
// people write between the digits. It returns "" if s is not one, or of no country.
func PhonePrefix(s string) string {
	prefix := beginning.FindString(dialled(s))
	for code := range phonenumbers.GetSupportedCallingCodes() {
		country := "+" + strconv.Itoa(code)
		if strings.HasPrefix(prefix, country) || prefix != "" && strings.HasPrefix(country, prefix) {
			return prefix
		}
	}
	return ""
}

// aFloat matches a number of a column that a spreadsheet or program has read as floats.
var aFloat = regexp.MustCompile(`^[0-9]+\.0$`)

// dialled returns the digits of a phone, after a + if it is international. It returns ""
// if s has other characters than people write in phones.
func dialled(s string) string {
	s = plain(s)
	if aFloat.MatchString(s) {
		return "" // the last 0 is no digit of the phone
	}
	s = strings.Map(func(r rune) rune {
		if r == '.' || r == '/' || r == japaneseDash || unicode.In(r, unicode.Ps, unicode.Pe) {
			return -1
		}
		return r
	}, s)
	if international, ok := strings.CutPrefix(s, "00"); ok {
		s = "+" + international
	}
	if strings.Trim(strings.TrimPrefix(s, "+"), "0123456789") != "" {
		return ""
	}
	return s
}

// japaneseDash is what the dash key of a Japanese keyboard types. To Unicode it is a letter,
// to libphonenumber a dash.
const japaneseDash = 'ー'

// IsRegion reports whether Phone knows the numbers of a region.
func IsRegion(region string) bool { return phonenumbers.GetSupportedRegions()[region] }

// LoginID returns the normal form of a login id of any kind. That of a phone is E.164, as
// in Phone. That of emails and login names is Unicode's NFKC_Casefold, in which the domain
// of an email has one form, whether it was typed in Unicode or in Punycode.
func LoginID(s, region string) string {
	if phone := Phone(s, region); phone != "" {
		return phone
	}
	return LoginName(s)
}

// LoginName is LoginID for a text that is no phone, although it may read as one.
func LoginName(s string) string {
	s = password.Fold(unquoted(visible(s)))
	at := strings.LastIndexByte(s, '@') + 1
	if domain, err := domains.ToUnicode(s[at:]); at > 0 && err == nil {
		s = s[:at] + password.Fold(visible(domain))
	}
	return s
}

// LoginIDPart normalises a part of a login id, so that it can be found in normal forms. If
// the part looks like a piece of a phone, with a plus, spaces or brackets, it becomes
// digits.
func LoginIDPart(s string) string {
	if strings.ContainsAny(password.Fold(s), "+() ") {
		if digits := dialled(s); strings.Trim(digits, "+") != "" {
			return digits
		}
	}
	return LoginID(s, "")
}

// domains maps domains to Punycode and back. Unlike idna.Lookup it accepts domains such as
// r3---sn.example, which exist.
var domains = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckHyphens(false), idna.VerifyDNSLength(true))

// sendable matches an email in ASCII, apart from what is before the @, that is neither a
// list nor has a name, and whose domain RFC 5321 allows.
var sendable = regexp.MustCompile(`^[^@<>,;"\\\s\pZ\pC]+@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

// Email returns an email in the form in which it is stored: NFKC, without invisible
// characters and the space around it. It returns "" if no mail can be sent to s.
func Email(s string) string {
	typed := s
	s = strings.TrimSpace(unquoted(norm.NFKC.String(visible(s))))
	if at := strings.LastIndexByte(s, '@') + 1; at > 0 {
		s = s[:at] + strings.ReplaceAll(joined(s[at:], typed), "。", ".")
	}
	ascii, err := ASCIIDomain(s)
	if err != nil || !sendable.MatchString(ascii) || len(ascii) > 254 || strings.IndexByte(ascii, '@') > 64 { // RFC 5321, section 4.5.3.1
		return ""
	}
	return s
}

// joined returns the domain of a typed email with the joiners that tell it from another one,
// as in Persian (RFC 5892, appendix A). Elsewhere they are invisible, and are left out.
func joined(domain, typed string) string {
	if !strings.ContainsFunc(typed, isJoiner) {
		return domain
	}
	typed = norm.NFKC.String(strings.Map(func(r rune) rune {
		if isIgnorable(r) && !isJoiner(r) {
			return -1
		}
		return r
	}, typed))
	typed = strings.TrimSpace(typed[strings.LastIndexByte(typed, '@')+1:])
	if _, err := domains.ToASCII(typed); err != nil || visible(typed) != domain {
		return domain
	}
	return typed
}

func isJoiner(r rune) bool { return r == '\u200c' || r == '\u200d' }

// unquoted returns an email without the quotes of RFC 5321, which Sendable adds where they
// are needed.
func unquoted(s string) string {
	if parsed, err := mail.ParseAddress(s); err == nil && strings.HasPrefix(strings.TrimSpace(s), `"`) && parsed.Name == "" {
		return parsed.Address
	}
	return s
}

// Sendable returns an email as mail servers accept it: quoted where RFC 5321 demands it,
// as in "taro..yamada"@docomo.ne.jp, which some mailboxes are called.
func Sendable(email string) string {
	return strings.Trim((&mail.Address{Address: email}).String(), "<>")
}

// ASCIIDomain returns an email with the A-labels of its domain (RFC 5890), so that it needs
// SMTPUTF8 only for what is before the @.
func ASCIIDomain(email string) (string, error) {
	at := strings.LastIndexByte(email, '@') + 1
	domain, err := domains.ToASCII(email[at:])
	return email[:at] + domain, err
}
