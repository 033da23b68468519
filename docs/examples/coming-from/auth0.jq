# Adapt the numbers of your OAuth providers. What other systems have told Auth0 can be text
# ("false", which jq takes for true) or numbers.
{"google-oauth2": 1, github: 3} as $providers
| ($hashes | map({key: "auth0|\(.alt_id // ._id["$oid"])", value: .passwordHash}) | from_entries) as $hash
| {
    profile_mnemocode: .user_id,
    primary_email: (if "\(.email_verified)" == "true" then .email else null end),
    primary_phone: (if "\(.phone_verified)" == "true" then .phone_number else null end),
    password_hash: $hash[.user_id],
    second_factor: ((.multifactor // []) != []),
    oauth_identities: [.identities[] | select($providers[.provider]) | {provider_id: $providers[.provider], subject: "\(.user_id)"}],
    role: .app_metadata.role, # not Auth0's own roles
    status: (if .blocked then "closed" else "active" end),
    created_at: (.created_at // (now | todate))
  }
| select(.primary_email or .primary_phone or .oauth_identities != [])
| .email_verified_at = (if .primary_email then .created_at else null end)
| .phone_verified_at = (if .primary_phone then .created_at else null end)
