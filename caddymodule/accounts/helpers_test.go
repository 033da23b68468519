package accounts

import "fmt"

// readyHash is bcrypt's of "test": one that the store takes as it is.
const readyHash = "$2y$04$mIJxfrCaEI3GukZe11CiXublhEFanu5.ododkll1WphfSp6pn4zIu"

// importLine is an account with a ready hash, a phone, an email and a login name.
func importLine(i int) string {
	return fmt.Sprintf(`{"profile_mnemocode":"user-%06d","primary_phone":"+3706%07d","primary_email":"user%d@example.com","login_name":"user%d","password_hash":%q}`,
		i, i, i, i, readyHash)
}
