.pk as $id
| .fields
| select(.password | startswith("!") | not)
| {
    profile_mnemocode: "django-\($id)",
    login_name: .username,
    password_hash: .password,
    role: (if .is_superuser then "superuser" elif .is_staff then "staff" else null end),
    status: (if .is_active then "active" else "closed" end),
    created_at: .date_joined
  }
