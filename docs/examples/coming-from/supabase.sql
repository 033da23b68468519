-- Supabase stores phones without the plus sign. supabase.jq adds it.
select row_to_json(u) from (
  select id, email, email_confirmed_at, phone, phone_confirmed_at, encrypted_password, banned_until, created_at,
    raw_app_meta_data->>'role' as role,
    (select json_agg(json_build_object('provider', provider, 'subject', provider_id))
      from auth.identities i where i.user_id = users.id) as identities,
    (select json_agg(json_build_object('type', factor_type, 'secret', secret, 'phone', phone))
      from auth.mfa_factors f where f.user_id = users.id and f.status = 'verified') as factors
  from auth.users where deleted_at is null and not is_anonymous
) u;
