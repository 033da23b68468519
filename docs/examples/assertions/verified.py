# Verifies the assertions of mnemogate, as docs/backends.md describes them.
import jwt

keys = jwt.PyJWKClient("https://api.example.com/acme/v2/jwks.json")

def verified(app):
    def middleware(environ, start_response):
        token, status = environ.get("HTTP_X_MNEMOGATE_ASSERTION", ""), "503 Service Unavailable"
        try:
            keys.get_jwk_set()  # fails if the keys can't be loaded
            status = "403 Forbidden"
            key = keys.get_signing_key_from_jwt(token).key
            claims = jwt.decode(token, key, algorithms=["ES256"], audience="profile-api", issuer="https://api.example.com/acme", leeway=5)
        except (jwt.PyJWTError, OSError, ValueError):
            start_response(status, [("Content-Type", "text/plain")])
            return [b"no valid assertion"]
        return app({**environ, "REMOTE_USER": claims["sub"]}, start_response)
    return middleware
