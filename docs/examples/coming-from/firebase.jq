# Adapt the numbers of your OAuth providers.
{"google.com": 1, "apple.com": 2} as $providers
| $config[0] as $c
| .users[]
| {
    profile_mnemocode: .localId,
    primary_email: (if .emailVerified then .email else null end),
    primary_phone: (.phoneNumber // first(.mfaInfo[]?.phoneInfo | select(.)) // null),
    second_factor: ((.mfaInfo // []) | length > 0),
    password_hash: (if .passwordHash then "$fbscrypt$v=1,n=\($c.mem_cost),r=\($c.rounds),p=1,ss=\($c.salt_separator),sk=\($c.signer_key)$\(.salt)$\(.passwordHash)" else null end),
    oauth_identities: [.providerUserInfo[]? | select($providers[.providerId]) | {provider_id: $providers[.providerId], subject: .rawId}],
    # a custom claim of this name
    role: ((.customAttributes // "{}") | fromjson.role),
    status: (if .disabled then "closed" else "active" end),
    created_at: (.createdAt | tonumber / 1000 | floor | todate)
  }
| select(.primary_email or .primary_phone or .oauth_identities != [])
| .email_verified_at = (if .primary_email then .created_at else null end)
| .phone_verified_at = (if .primary_phone then .created_at else null end)
