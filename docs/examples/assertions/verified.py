# Verifies the assertions of mnemogate, as docs/backends.md describes them.
import re
import time
from http.client import HTTPException
from urllib.parse import quote
from urllib.request import urlopen

import jwt

keys, loaded = {}, float("-inf")
# The names of identity headers and of the assertion, in any spelling.
identity = re.compile("HTTP_X.(PROFILE.*|COMPANY.CODE|MNEMOGATE.ASSERTION)")

def keys_with(kid):
    """Returns the keys. Loads them anew after five minutes, and for an unknown kid after 30 s. PyJWKClient
    would load them for each unknown kid, and old versions of it wait forever."""
    global keys, loaded
    age = time.monotonic() - loaded
    if age > 300 or kid not in keys and age > 30:
        with urlopen("https://api.example.com/acme/v2/jwks.json", timeout=5) as response:
            keys = {key.key_id: key.key for key in jwt.PyJWKSet.from_json(response.read().decode()).keys}
        loaded = time.monotonic()
    return keys

def verified(app):
    def middleware(environ, start_response):
        token, status = environ.get("HTTP_X_MNEMOGATE_ASSERTION", ""), "403 Forbidden"
        try:
            header = jwt.get_unverified_header(token)
            status = "503 Service Unavailable"  # if the keys can't be loaded
            known = keys_with(header.get("kid"))
            status = "403 Forbidden"
            # A clock that is slow must not refuse new assertions: exp is enough.
            claims = jwt.decode(token, known[header.get("kid")], algorithms=["ES256"], audience="profile-api",
                                issuer="https://api.example.com/acme", leeway=5, options={"verify_iat": False})
            if header.get("typ") != "mnemogate+jwt" or claims.get("company") != "acme":
                raise ValueError("not an assertion about our users")
        except (jwt.PyJWTError, HTTPException, KeyError, OSError, ValueError):
            start_response(status, [("Content-Type", "text/plain")])
            return [b"no valid assertion"]
        # Those who come past mnemogate can forge the headers beside their own assertion.
        environ = {name: value for name, value in environ.items() if not identity.fullmatch(name)}
        environ.update(REMOTE_USER=claims["sub"], HTTP_X_PROFILE_MNEMOCODE=claims["sub"], HTTP_X_COMPANY_CODE=claims["company"])
        if "act" in claims:  # who acts as the user
            environ["HTTP_X_PROFILE_ACTOR"] = quote(claims["act"]["sub"], safe="")
        return app(environ, start_response)
    return middleware
