.pk as $id
| .fields
| select(.password | startswith("!") | not)
| (.date_joined | if test("Z$|[+-]\\d\\d:\\d\\d$") then . else . + "Z" end) as $joined # without USE_TZ, it has no zone
| {
    profile_mnemocode: "django-\($id)",
    login_name: .username,
    # If your site verifies emails, remove the # of the next line:
    # primary_email: .email, email_verified_at: (if .email == "" then null else $joined end),
    password_hash: .password,
    role: (if .is_superuser then "superuser" elif .is_staff then "staff" else null end),
    status: (if .is_active then "active" else "closed" end),
    created_at: $joined
  }
