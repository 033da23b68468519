# Adapt the numbers of your OAuth providers.
{google: 1, github: 3} as $providers
| (.factors // []) as $factors
| (if .phone_confirmed_at then "+" + .phone else first($factors[].phone | select(.) | "+" + ltrimstr("+")) // null end) as $phone
| {
    profile_mnemocode: .id,
    primary_email: (if .email_confirmed_at then .email else null end),
    email_verified_at: .email_confirmed_at,
    primary_phone: $phone,
    phone_verified_at: (if $phone then .phone_confirmed_at // .created_at else null end),
    password_hash: (if .encrypted_password == "" then null else .encrypted_password end),
    second_factor: ($factors != []),
    totp_secret: (first($factors[].secret | select(. and (startswith("{") | not))) // null),
    oauth_identities: [.identities[]? | select($providers[.provider]) | {provider_id: $providers[.provider], subject}],
    role,
    status: (if (.banned_until // "") > (now | todate) then "restricted" else "active" end),
    created_at
  }
| select(.primary_email or .primary_phone or .oauth_identities != [])
