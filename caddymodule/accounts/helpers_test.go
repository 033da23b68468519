package accounts

import "fmt"

// readyHash is the bcrypt hash of "test", which the store takes without hashing
// again.
const readyHash = "$2y$04$mIJxfrCaEI3GukZe11CiXublhEFanu5.ododkll1WphfSp6pn4zIu"

// importLine returns an account with a password hash, a phone, an email and a login
// name.
func importLine(i int) string {
	return fmt.Sprintf(`{"profile_mnemocode":"user-%06d","primary_phone":"+3706%07d","primary_email":"user%d@example.com","login_name":"user%d","password_hash":%q}`,
		i, i, i, i, readyHash)
}
