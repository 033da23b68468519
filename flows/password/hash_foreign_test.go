package password

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// exportedHashes are hashes as other programs export them. The name says which
// program made the hash. Spring's come from its DelegatingPasswordEncoder with the
// defaults of its PasswordEncoderFactories.
var exportedHashes = []struct{ name, secret, hash string }{
	{"Django 3.2, pbkdf2_sha256", "correct horse battery", "pbkdf2_sha256$260000$jw1fC5hhKRYuEokeatVFCK$EH3db6XWEF3n9fsrwHbnCqN7+QWH4nsUZqWS3H0zQ4w="},
	{"Django 3.2, pbkdf2_sha1", "correct horse battery", "pbkdf2_sha1$260000$99hCCflgp0sjhoW0n9UiZ0$a51b3QjcCNUTyoL5Qa+BHuGwzjE="},
	{"Django 3.2, argon2", "correct horse battery", "argon2$argon2id$v=19$m=102400,t=2,p=8$VktxemNpNzZqSGVXd0dNZGRoYlhOMw$fiJMLLV59ZokoBt226daCg"},
	{"Django 3.2, bcrypt_sha256", "correct horse battery", "bcrypt_sha256$$2b$12$fGpLKtQtP.AVoO4llvCGf.AjafYwnaxOFz/4vEfk2SLCtJwu1lsqO"},
	{"Django 3.2, bcrypt_sha256, over 72 bytes", strings.Repeat("x", 100) + "pässwörd ✓", "bcrypt_sha256$$2b$12$o3R5FXDj5t6pII8iiTqHk.4y4ZVRK5CioQ9LyJMj2PlzDnE6fYCE2"},
	{"Django 3.2, bcrypt", "correct horse battery", "bcrypt$$2b$12$.3rVITiNzy9ih9njQzgqeuFvJhrpLklycgA/zqkG/./B8h7RVcvc."},
	{"Django's own test, pbkdf2_sha256", "lètmein", "pbkdf2_sha256$390000$seasalt$8xBlGd3jVgvJ+92hWPxi5ww0uuAuAnKgC45eudxro7c="},
	{"Django's own test, scrypt", "lètmein", "scrypt$16384$seasalt$8$5$ECMIUp+LMxMSK8xB/IVyba+KYGTI7FTnet025q/1f/vBAVnnP3hdYqJuRi+mJn6ji6ze3Fbb7JEFPKGpuEf5vw=="},

	{"Firebase's published example", "user1password", "$fbscrypt$v=1,n=14,r=8,p=1,ss=Bw==,sk=jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA==$42xEC+ixf3L2lw==$lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1SAyZvqmZqAjTdn3aoItz+VHjoZilo78198JAdRuid5lQ=="},

	{"Supabase's own test, fbscrypt", "mytestpassword", "$fbscrypt$v=1,n=14,r=8,p=1,ss=Bw==,sk=ou9tdYTGyYm8kuR6Dt0Bp0kDuAYoXrK16mbZO4yGwAn3oLspjnN0/c41v8xZnO1n14J3MjKj1b2g6AUCAlFwMw==$C0sHCg9ek77hsg==$zKVTMvnWVw5BBOZNUdnsalx4c4c7y/w7IS5p6Ut2+CfEFFlz37J9huyQfov4iizN8dbjvEJlM5tQaJP84+hfTw=="},
	{"Supabase's own test, argon2i", "test", "$argon2i$v=19$m=16,t=2,p=1$bGJRWThNOHJJTVBSdHl2dQ$NfEnUOuUpb7F2fQkgFUG4g"},
	{"Supabase's own test, argon2id", "test", "$argon2id$v=19$m=32,t=3,p=2$SFVpOWJ0eXhjRzVkdGN1RQ$RXnb8rh7LaDcn07xsssqqulZYXOM/EUCEFMVcAcyYVk"},
	{"Supabase's own test, bcrypt", "test", "$2y$10$srNl09aPtc2qr.0Vl.NtjekJRt/NxRxYQm3qd3OvfcKsJgVnr6.Ve"},

	{"the same for URLs, unpadded, fbscrypt", "mytestpassword", "$fbscrypt$v=1,n=14,r=8,p=1,ss=Bw,sk=ou9tdYTGyYm8kuR6Dt0Bp0kDuAYoXrK16mbZO4yGwAn3oLspjnN0_c41v8xZnO1n14J3MjKj1b2g6AUCAlFwMw$C0sHCg9ek77hsg$zKVTMvnWVw5BBOZNUdnsalx4c4c7y_w7IS5p6Ut2-CfEFFlz37J9huyQfov4iizN8dbjvEJlM5tQaJP84-hfTw"},
	{"the same for URLs, padded, fbscrypt", "mytestpassword", "$fbscrypt$v=1,n=14,r=8,p=1,ss=Bw==,sk=ou9tdYTGyYm8kuR6Dt0Bp0kDuAYoXrK16mbZO4yGwAn3oLspjnN0_c41v8xZnO1n14J3MjKj1b2g6AUCAlFwMw==$C0sHCg9ek77hsg==$zKVTMvnWVw5BBOZNUdnsalx4c4c7y_w7IS5p6Ut2-CfEFFlz37J9huyQfov4iizN8dbjvEJlM5tQaJP84-hfTw=="},

	{"crypt(3) of libxcrypt, sha512crypt", "correct horse battery", "$6$9pQeTnvBhYxl1sEd$sWLJdds9nBrd5LCNOFU3hQK11IpVzkNPUDl2pPFghEeb4LWEia4U1uShdJFWVSkYIVfqaCetUIH1QybF3UZeV."},
	{"openssl passwd -6", "pässwörd ✓", "$6$0fQ7uXbGd2vLkJ9c$mXR907IAPTKR8qIygLQ21pGrkyMoFV6wDrXmArkYQqRRIj0qwpO8Nkqh/J4K/Lyuj8mIO3srQ/2qzZ69ebJDu/"},
	{"crypt(3) of libxcrypt, sha512crypt of 1000 rounds", "x", "$6$rounds=1000$a$g8xNDa7lPPT7t0NNQJnjbVXLz4gfYBmVrmrNAyCXiuy8T6/nLCQRbI2SD9ZZJFpJdLLsB0S.DKTdPMWfmikPP/"},
	{"crypt(3) of libxcrypt, sha256crypt", "correct horse battery", "$5$h1Kd.tRzq0Yw9mAb$VHbu0gKni2oqZz97WLJtL2LgUZgN3WyX7u5ZwKPh1BB"},
	{"openssl passwd -5", "pässwörd ✓", "$5$0fQ7uXbGd2vLkJ9c$CB7e7UmkNeTNRebmTrjgH1MVmamUjUdExCqldFkPHO7"},
	{"crypt(3) of libxcrypt, sha256crypt of 10000 rounds, over 72 bytes", strings.Repeat("x", 100) + "pässwörd", "$5$rounds=10000$ab$RJBTxhzNfoDudyYbmm/M8cA1ZNxiU9jVARoOxMgxhc7"},

	{"WordPress 6.1's PasswordHash", "correct horse battery", "$P$BAjRKiNGO0k5oMn46AhfMv4WChdjMq1"},
	{"WordPress 6.1's PasswordHash, posted as WordPress gets it", `it's a "pässwörd" ✓ \`, "$P$B44LvL05APty0L5oUH.rciR13zjHYp."},
	{"WordPress 6.1's PasswordHash, over 72 bytes", strings.Repeat("x", 100) + "pässwörd", "$P$Bn.VuSVerC1znKk.7WQZSoxRA0bKUL1"},
	{"PHP's password_hash as WordPress 6.8 calls it", "correct horse battery", "$wp$2y$10$cXBrDjehHBF5viJm0WqYietPTseU.9zYtP0ws0DGGxomvyMplrorW"},
	{"PHP's password_hash as WordPress 6.8 calls it, posted", `it's a "pässwörd" ✓ \`, "$wp$2y$10$FLecsVIx1Vb3qQbrf/F65.khduwdi/KhwHAIoJPGr9bWEOCKLX54W"},
	{"PHP's password_hash as WordPress 6.8 calls it, over 72 bytes", strings.Repeat("x", 100) + "pässwörd", "$wp$2y$10$/pQMv0arWK.zUDx3c64CqubHBfDd.WID3ihHjDm5dZEk4yoKA/ZOO"},

	{"openssl passwd -1", "correct horse battery", "$1$nHcF7jTn$HmqoY10BsdvhgD2RQEpsz0"},
	{"openssl passwd -1, beyond ASCII", "pässwörd ✓", "$1$FfewWXi8$i6E7O7pQfXfKmjJugFJvq1"},
	{"openssl passwd -1 -salt a", "x", "$1$a$TYcRT0JumNkKBBlirG1X4/"},
	{"crypt(3) of libxcrypt, md5crypt, over 72 bytes", strings.Repeat("x", 100) + "pässwörd", "$1$ab$9GCXuvO7gXsTtz9/ZPCaA/"},
	{"openssl passwd -apr1", "correct horse battery", "$apr1$Zdxv4/C7$BKglgcBr74uOKbrbShwZo0"},
	{"openssl passwd -apr1, beyond ASCII", "pässwörd ✓", "$apr1$OYXeCZ0n$ES2UZ0iHb9j6X7ZKITG6k1"},

	{"passlib, phpBB", "correct horse battery", "$H$9kJFSrLG1bDz3zS1.MHPLHmf4RbHeR1"},
	{"passlib, phpBB, posted as phpBB gets it", `a & b "<>' ✓`, "$H$9QI6Vq8IkHLr0dpalg/.jIMAdZRg/s1"},
	{"hashcat's example, Drupal 7", "hashcat", "$S$C33783772bRXEx1aCsvY.dqgaaSu76XmVlKrW9Qu8IQlvxHlmzLf"},

	{"passlib, SSHA", "pässwörd ✓", "{SSHA}6NELWzFYTjQUrMFCwTkwPwsv9Y8GIKS0"},
	{"passlib, SSHA256", "correct horse battery", "{SSHA256}83i2ED/UEozYASIUPLoa9YFqPt+XGkCdWk77I43+09HUWksppZQyRg=="},
	{"passlib, SSHA512", "pässwörd ✓", "{SSHA512}xh9wEUm7TykEWqvLDn1V5RezIJRkX1ZvwIF7F7nZCV0FSFYZejKgSWC/kioqNlsRLG+WhTyfh+dQGyngm6qeAF6rFYIQ4nzv"},

	{"Werkzeug 2.2, pbkdf2:sha256", "pässwörd ✓", "pbkdf2:sha256:260000$KrHI0gSc9EoNRsS7$15de0adbab8f07462905816e1a69ac07aa639bc96c79aa3561a1df3d96ad7aed"},
	{"Werkzeug 2.2, pbkdf2:sha1", "pässwörd ✓", "pbkdf2:sha1:1000$nIBwTI3idoemKjsH$ab5a1529a8f1cc6c78f6a507be1a88e9607e236c"},
	{"Werkzeug 2.2, pbkdf2:sha512", "correct horse battery", "pbkdf2:sha512:100000$qOcwSyRplbK50ir9$11c31d89107463d4b9cc95160cd16a17de920f2fa1f143b8ca9bf4cd5de261879e6b9c8c7b7732e9d003d9cf826fa15e32342f095f60a5b3b004ebbc9eb6985b"},
	{"hashlib, as Werkzeug 3 calls scrypt", "correct horse battery", "scrypt:32768:8:1$pAO2Qmvc5WyTzng9$e6416c3b7a25c0fa7ed036c1f85ab5c2cdf74aa617fa4b578e34870107e400e293c627028c0383a8792bd60488503f8b2629647dfeeccd4bbb29adef30cb3115"},

	{"ASP.NET's own test, SHA-1", "my password", "AQAAAAAAAAD6AAAAEAhftMyfTJylOlZT+eEotFXd1elee8ih5WsjXaR3PA9M"},
	{"ASP.NET's own test, SHA-256", "my password", "AQAAAAEAACcQAAAAEAABAgMEBQYHCAkKCwwNDg+yWU7rLgUwPZb1Itsmra7cbxw2EFpwpVFIEtP+JIuUEw=="},
	{"ASP.NET's own test, SHA-512", "my password", "AQAAAAIAAAD6AAAAIJbVi5wbMR+htSfFp8fTw8N8GOS/Sje+S/4YZcgBfU7EQuqv4OkVYmc4VJl9AGZzmRTxSkP7LtVi9IWyUxX8IAAfZ8v+ZfhjCcudtC1YERSqE1OEdXLW9VukPuJWBBjLuw=="},

	{"Spring Security 7, bcrypt", "correct horse battery", "{bcrypt}$2a$10$QCCd34Poinjy/n6I4ym2Q.jBEMpUW582RxySs5lJvcOFH1bZ05eA6"},
	{"Spring Security 7, pbkdf2", "pässwörd ✓ 50m²", "{pbkdf2}2b25a8f05d5691a9d6e40a66beb89d4f7e5527b34ccc267cf04fe82e1d9d4687314801087a80d43b"},
	{"Spring Security 7, pbkdf2 5.8", "pässwörd ✓ 50m²", "{pbkdf2@SpringSecurity_v5_8}a5513201583d8b5ad4df4d0330190ba78510eae21d4ef6ec6ae394d4c8defe443666e81a616d472964b67a74c5625077"},
	{"Spring Security 7, scrypt", "pässwörd ✓ 50m²", "{scrypt}$e0801$hlWjDyWxXDIaLK82IY4cNQNdG3mIuUR/ZWF6TCZDSjmdE2HmoKYUoivAugcisGJ6tOGkNy3vzV/txIY61YUm0w==$BGiwt1DuqCHo88QGpIvF1jwEG6SboRP2prrfti44Xm8="},
	{"Spring Security 7, scrypt 5.8", "pässwörd ✓ 50m²", "{scrypt@SpringSecurity_v5_8}$100801$patAC7TkF58LLac5SYFtHQ==$/Spcj7bU3zyNvYmtor9fFSE4XbEz5917Rvl5wPijXgs="},
	{"Spring Security 7, argon2", "pässwörd ✓ 50m²", "{argon2}$argon2id$v=19$m=4096,t=3,p=1$A2B8v27EbiGjtbTNPsazoQ$6vpQvIMoetEPu4HxnJeWOY59fQ+j9qYbJ4suTmxHyUc"},
	{"Spring Security 7, argon2 5.8", "pässwörd ✓ 50m²", "{argon2@SpringSecurity_v5_8}$argon2id$v=19$m=16384,t=2,p=1$B1cqtv/+Tp33bZpb5ln7Ug$NlfHmLutoN9oa0OE2GQ5wnHphXECqpikI46aZt0SjmE"},
}

// keycloakCredentials were exported by Keycloak, except the two whose name says that
// hashlib computed their value.
var keycloakCredentials = []struct{ name, secret, credential string }{
	{"Keycloak 26, argon2", "secret", `{"type": "password",
		"secretData": "{\"value\":\"xKjWvB9+0sSP6wTqI1JoEI7w+iA0x9VDhPgmrOHRG80=\",\"salt\":\"LRScGShC7shkdoU5B1UgUQ==\",\"additionalParameters\":{}}",
		"credentialData": "{\"hashIterations\":5,\"algorithm\":\"argon2\",\"additionalParameters\":{\"hashLength\":[\"32\"],\"memory\":[\"7168\"],\"type\":[\"id\"],\"version\":[\"1.3\"],\"parallelism\":[\"1\"]}}"}`},
	{"Keycloak, pbkdf2-sha256", "password", `{"id": "x", "type": "password", "createdDate": 1699281486748,
		"secretData": "{\"value\":\"JsfNbCOIdZUbyBJ+BT+VoGI91Ec2rWLOvkLPDaX8e9k=\",\"salt\":\"P5rtFkGtPfoaryJ6PizUJw==\",\"additionalParameters\":{}}",
		"credentialData": "{\"hashIterations\":27500,\"algorithm\":\"pbkdf2-sha256\",\"additionalParameters\":{}}"}`},
	{"Keycloak 10, 64 bytes, no parameters", "secret", `{
		"secretData": "{\"value\":\"ZlFwBaEIHvgc7EWANWYD05nwZYoLJwUwnOE+A+tDG9KZg9dOpCE4AWfI98RKLNqiVp8I/h6TWJ7RASEC8Xd/lQ==\",\"salt\":\"G+Uh/sKCe4MWnV+aGHAtBw==\"}",
		"credentialData": "{\"hashIterations\":27500,\"algorithm\":\"pbkdf2-sha256\"}"}`},
	{"hashlib, pbkdf2-sha512, as objects", "correct horse battery", `{
		"secretData": {"value":"gXBtL09EyLd99LTTXkXwBfAf0QsgPq+JDAvWo22XXF7nbmyl7HGs9lh0o6kaUsoPob6eNQPuhtf9sPmjHx3A1Q==","salt":"MDEyMzQ1Njc4OWFiY2RlZg=="},
		"credentialData": {"hashIterations":210000,"algorithm":"pbkdf2-sha512"}}`},
	{"hashlib, pbkdf2", "correct horse battery", `{
		"secretData": "{\"value\":\"Y8j5WJyBAN8iC24XBFmJXwlku/gkrLa4QS/qQQ18ecH3bcUns0vpCHlQ5joYXReSnxHrdQD1FwP8w7KofSAnrA==\",\"salt\":\"MDEyMzQ1Njc4OWFiY2RlZg==\"}",
		"credentialData": "{\"hashIterations\":20000,\"algorithm\":\"pbkdf2\"}"}`},
}

func checkForeign(t *testing.T, hash, secret string) {
	t.Helper()
	must(t, CheckHash(hash, Argon2id{}))
	if !LooksLikeHash(hash) {
		t.Error("does not look like a hash")
	}
	h := NewHasher(0)
	ok, outdated, err := h.Verify(t.Context(), acme, DefaultArgon2id, hash, secret)
	cut := strings.HasPrefix(hash, "$2") && len(secret) >= bcryptBytes
	if !ok || outdated == cut || err != nil {
		t.Errorf("right secret: %v, %v, %v, want true, %v, nil", ok, outdated, err, !cut)
	}
	// Each of the expensive hashes but one is derived as a cheaper one here.
	if d, err := parseHash(hash); err != nil || d.cost > 100*time.Millisecond && d.kind != "django_bcrypt_sha256" {
		must(t, err)
		return
	}
	ok, outdated, err = h.Verify(t.Context(), acme, DefaultArgon2id, hash, secret[1:])
	if ok || outdated || err != nil {
		t.Errorf("wrong secret: %v, %v, %v, want false, false, nil", ok, outdated, err)
	}
}

func TestVerifyTakesTheHashesOfOtherPrograms(t *testing.T) {
	for _, test := range slices.Concat(foreignHashes, exportedHashes) {
		t.Run(test.name, func(t *testing.T) { checkForeign(t, test.hash, test.secret) })
	}
}

// WordPress trims the spaces around a password. It adds backslashes to a password
// that was entered in a form, but not to one that a program has set.
func TestWordPressSetPasswordsWithAndWithoutBackslashes(t *testing.T) {
	h := NewHasher(1)
	// PasswordHash(8, true)->HashPassword("it's fine"), and the same with
	// addslashes().
	for _, hash := range []string{"$P$BunSe5c.2OWUhk0pe10OTR9dtJ4Xg./", "$P$BXZMFhLhjKNOzOrMneE11F6rr9Sac9/"} {
		for typed, want := range map[string]bool{"it's fine": true, "  it's fine\t": true, "its fine": false, "it''s fine": false} {
			if ok, _, err := h.Verify(t.Context(), acme, quick, hash, typed); ok != want || err != nil {
				t.Errorf("%.12s of %q: got %v, %v", hash, typed, ok, err)
			}
		}
	}
}

func TestVerifyTakesKeycloakCredentials(t *testing.T) {
	for _, test := range keycloakCredentials {
		t.Run(test.name, func(t *testing.T) {
			hash, err := KeycloakHash([]byte(test.credential))
			must(t, err)
			checkForeign(t, hash, test.secret)
		})
	}
}

func TestCheckHashRefusesWhatOtherProgramsShouldNotAskFor(t *testing.T) {
	const signer = "ou9tdYTGyYm8kuR6Dt0Bp0kDuAYoXrK16mbZO4yGwAn3oLspjnN0/c41v8xZnO1n14J3MjKj1b2g6AUCAlFwMw=="
	const key = "zKVTMvnWVw5BBOZNUdnsalx4c4c7y/w7IS5p6Ut2+CfEFFlz37J9huyQfov4iizN8dbjvEJlM5tQaJP84+hfTw=="
	firebase := func(settings, salt, key string) string { return "$fbscrypt$" + settings + "$" + salt + "$" + key }
	for name, hash := range map[string]string{
		"Django, too many iterations":       "pbkdf2_sha256$3000001$jw1fC5hhKRYuEokeatVFCK$EH3db6XWEF3n9fsrwHbnCqN7+QWH4nsUZqWS3H0zQ4w=",
		"Django, no iterations":             "pbkdf2_sha256$0$jw1fC5hhKRYuEokeatVFCK$EH3db6XWEF3n9fsrwHbnCqN7+QWH4nsUZqWS3H0zQ4w=",
		"Django, no salt":                   "pbkdf2_sha256$1000$$EH3db6XWEF3n9fsrwHbnCqN7+QWH4nsUZqWS3H0zQ4w=",
		"Django, no base64":                 "pbkdf2_sha256$1000$salt$!",
		"Django, a field too many":          "pbkdf2_sha256$1000$salt$EH3db6XWEF3n9fsrwHbnCqN7+QWH4nsUZqWS3H0zQ4w=$",
		"Django, scrypt N no power of two":  "scrypt$16385$seasalt$8$5$ECMIUp+LMxMSK8xB/IVybQ==",
		"Django, scrypt N 0":                "scrypt$0$seasalt$8$5$ECMIUp+LMxMSK8xB/IVybQ==",
		"Django, scrypt over 256 MiB":       "scrypt$524288$seasalt$8$1$ECMIUp+LMxMSK8xB/IVybQ==",
		"Django, argon2 over 256 MiB":       "argon2$argon2id$v=19$m=262145,t=1,p=1$VktxemNpNzZqSGVXd0dNZGRoYlhOMw$fiJMLLV59ZokoBt226daCg",
		"Django, argon2d":                   "argon2$argon2d$v=19$m=1024,t=1,p=1$VktxemNpNzZqSGVXd0dNZGRoYlhOMw$fiJMLLV59ZokoBt226daCg",
		"Django, bcrypt of cost 15":         "bcrypt$$2b$15$.3rVITiNzy9ih9njQzgqeuFvJhrpLklycgA/zqkG/./B8h7RVcvc.",
		"Django, bcrypt of another kind":    "bcrypt$$2x$12$.3rVITiNzy9ih9njQzgqeuFvJhrpLklycgA/zqkG/./B8h7RVcvc.",
		"Django, md5":                       "md5$seasalt$3f86d0d3d465b7b458c231bf3555c0e3",
		"Django, sha1":                      "sha1$seasalt$cff36ea83f5706ce9aa7454e63e431fc726b2dc8",
		"Django, unusable":                  "!Kz5cOyYqQ6fS7a",
		"Firebase, v 2":                     firebase("v=2,n=14,r=8,p=1,ss=Bw==,sk="+signer, "C0sHCg9ek77hsg==", key),
		"Firebase, n not 32 bits":           firebase("v=1,n=4294967297,r=8,p=1,ss=Bw==,sk="+signer, "C0sHCg9ek77hsg==", key),
		"Firebase, n 0":                     firebase("v=1,n=0,r=8,p=1,ss=Bw==,sk="+signer, "C0sHCg9ek77hsg==", key),
		"Firebase, r 0":                     firebase("v=1,n=14,r=0,p=1,ss=Bw==,sk="+signer, "C0sHCg9ek77hsg==", key),
		"Firebase, p 0":                     firebase("v=1,n=14,r=8,p=0,ss=Bw==,sk="+signer, "C0sHCg9ek77hsg==", key),
		"Firebase, over 256 MiB":            firebase("v=1,n=20,r=8,p=1,ss=Bw==,sk="+signer, "C0sHCg9ek77hsg==", key),
		"Firebase, n is missing":            firebase("v=1,r=8,p=1,ss=Bw==,sk="+signer, "C0sHCg9ek77hsg==", key),
		"Firebase, sk twice":                firebase("v=1,n=14,r=8,p=1,sk=,sk="+signer, "C0sHCg9ek77hsg==", key),
		"Firebase, no signer key":           firebase("v=1,n=14,r=8,p=1,ss=Bw==", "C0sHCg9ek77hsg==", key),
		"Firebase, salt no base64":          firebase("v=1,n=14,r=8,p=1,ss=Bw==,sk="+signer, "!!!", key),
		"Firebase, hash shorter than sk":    firebase("v=1,n=14,r=8,p=1,ss=Bw==,sk="+signer, "C0sHCg9ek77hsg==", "ZGlmZmVyZW50aGFzaA=="),
		"a PHC hash with Django's prefix":   "argon2$argon2id",
		"the name alone":                    "scrypt$",
		"a plain password with dollars":     "pa$$word$",
		"a Keycloak credential as a string": keycloakCredentials[0].credential,
	} {
		if err := CheckHash(hash, Argon2id{}); err == nil {
			t.Errorf("%s was taken", name)
		} else if strings.Contains(err.Error(), "seasalt") {
			t.Errorf("%s: %v repeats what was sent", name, err)
		}
	}
	for name, credential := range map[string]string{
		"no object":         `[]`,
		"nothing in it":     `{}`,
		"another algorithm": `{"credentialData": {"algorithm": "bcrypt"}, "secretData": {}}`,
		"argon2 1.0":        `{"credentialData": {"algorithm": "argon2", "additionalParameters": {"version": ["1.0"]}}, "secretData": {}}`,
		"a one-time code's": `{"type": "otp", "secretData": "{\"value\":\"JBSWY3DPEHPK3PXP\"}", "credentialData": "{\"algorithm\":\"HmacSHA1\"}"}`,
	} {
		if _, err := KeycloakHash([]byte(credential)); err == nil {
			t.Errorf("Keycloak, %s: was taken", name)
		}
	}
	absurd, err := KeycloakHash([]byte(`{"credentialData": {"hashIterations": 100000000, "algorithm": "pbkdf2-sha256"}, "secretData": {"value": "JsfNbCOIdZUbyBJ+BT+VoGI91Ec2rWLOvkLPDaX8e9k=", "salt": "P5rtFkGtPfoaryJ6PizUJw=="}}`))
	must(t, err)
	if CheckHash(absurd, Argon2id{}) == nil {
		t.Error("a Keycloak credential with 100,000,000 iterations was taken")
	}
}
