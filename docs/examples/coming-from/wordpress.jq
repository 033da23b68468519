.[]
| {
    profile_mnemocode: "wp-\(.ID)",
    login_name: .user_login,
    primary_email: .user_email,
    password_hash: .user_pass,
    role: (.roles | split(",") | first),
    created_at: (.user_registered | sub(" "; "T") + "Z")
  }
