def base32: [explode[] as $byte | range(7; -1; -1) as $n | ($byte / pow(2; $n) | floor) % 2] as $bits
  | [range(0; $bits | length; 5) as $i | reduce ($bits[$i:$i + 5] + [0, 0, 0, 0])[:5][] as $bit (0; . * 2 + $bit) | "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[.:. + 1]]
  | add;

# Adapt the numbers of your OAuth providers.
{google: 1, github: 3} as $providers
| .users[]
| select(.serviceAccountClientId == null)
| [.credentials[]? | select(.type | IN("otp", "webauthn"))] as $factors
| {
    profile_mnemocode: .id,
    login_name: .username,
    primary_email: (if .emailVerified then .email else null end),
    # Phones and languages are attributes.
    primary_phone: (if .attributes.phoneNumberVerified[0]? == "true" then .attributes.phoneNumber[0] else null end),
    locale: .attributes.locale[0]?,
    # the first role of the realm that is not Keycloak's own
    role: (first(.realmRoles[]? | select(test("^default-roles-|^offline_access$|^uma_authorization$") | not)) // null),
    password_hash: ([.credentials[]? | select(.type == "password")] | first),
    second_factor: ($factors != []),
    totp_secret: (first($factors[] | select(.type == "otp") | (.credentialData | fromjson) as $data
      | select([$data["subType", "algorithm", "digits", "period"]] == ["totp", "HmacSHA1", 6, 30])
      | .secretData | fromjson.value | if $data.secretEncoding == "BASE32" then . else base32 end) // null),
    oauth_identities: [.federatedIdentities[]? | select($providers[.identityProvider]) | {provider_id: $providers[.identityProvider], subject: .userId}],
    must_set_password: ((.requiredActions // []) | index("UPDATE_PASSWORD") != null),
    status: (if .enabled then "active" else "closed" end),
    created_at: (.createdTimestamp / 1000 | floor | todate)
  }
| select(.password_hash or .primary_email or .primary_phone or .oauth_identities != [])
| .email_verified_at = (if .primary_email then .created_at else null end)
| .phone_verified_at = (if .primary_phone then .created_at else null end)
