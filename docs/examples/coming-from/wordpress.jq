.[]
| (.user_registered | sub(" "; "T") + "Z") as $created
| {
    profile_mnemocode: "wp-\(.ID)",
    login_name: .user_login,
    primary_email: .user_email,
    email_verified_at: (if .user_email == "" then null else $created end),
    password_hash: .user_pass,
    role: (.roles | split(",") | first),
    created_at: $created
  }
