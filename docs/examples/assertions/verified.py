# Verifies the assertions of mnemogate, as docs/backends.md describes them.
import re
from urllib.parse import quote

import jwt

keys = jwt.PyJWKClient("https://api.example.com/acme/v2/jwks.json")
identity = re.compile("HTTP_X.(PROFILE.*|COMPANY.CODE)")  # the names of identity headers, in any spelling

def verified(app):
    def middleware(environ, start_response):
        token, status = environ.get("HTTP_X_MNEMOGATE_ASSERTION", ""), "503 Service Unavailable"
        try:
            keys.get_jwk_set()  # fails if the keys can't be loaded
            status = "403 Forbidden"
            key = keys.get_signing_key_from_jwt(token).key
            claims = jwt.decode(token, key, algorithms=["ES256"], audience="profile-api", issuer="https://api.example.com/acme", leeway=5)
            if jwt.get_unverified_header(token).get("typ") != "mnemogate+jwt" or claims.get("company") != "acme":
                raise ValueError("not an assertion about our users")
        except (jwt.PyJWTError, OSError, ValueError):
            start_response(status, [("Content-Type", "text/plain")])
            return [b"no valid assertion"]
        # Those who come past mnemogate can forge the headers beside their own assertion.
        environ = {name: value for name, value in environ.items() if not identity.fullmatch(name)}
        environ.update(REMOTE_USER=claims["sub"], HTTP_X_PROFILE_MNEMOCODE=claims["sub"], HTTP_X_COMPANY_CODE=claims["company"])
        if "act" in claims:  # who acts as the user
            environ["HTTP_X_PROFILE_ACTOR"] = quote(claims["act"]["sub"], safe="")
        return app(environ, start_response)
    return middleware
