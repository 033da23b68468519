# Does what docs/backends.md describes of the accounts API and of issued tokens, and says
# what came of it. APP is where Caddy serves your application:
#
#     ACCOUNTS_API=… ACCOUNTS_KEY=… SIGNUP_KEY=… SUPPORT_KEY=… APP=… python3 accounts.py erin
import base64
import json
import os
import re
import sys
import time
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode
from urllib.request import Request, urlopen

API, KEY, SIGNUP_KEY, SUPPORT_KEY, APP = (os.environ[n] for n in ("ACCOUNTS_API", "ACCOUNTS_KEY", "SIGNUP_KEY", "SUPPORT_KEY", "APP"))
name = sys.argv[1]

def send(method, url, data=None, headers={}):
    """Sends a request, and returns the answer's status, headers and text."""
    try:
        response = urlopen(Request(url, data, headers, method=method), timeout=40)  # answers can take 30 s
    except HTTPError as error:
        response = error
    with response:
        return response.status, response.headers, response.read().decode()

def call(method, path, body=None, key=KEY, **headers):
    """Calls the accounts API. A dict is sent as JSON, a str as it is. The answer's ETag is last."""
    if isinstance(body, dict):
        body, headers["Content-Type"] = json.dumps(body), "application/json"
    headers = {"Authorization": "Bearer " + key} | {n.replace("_", "-"): v for n, v in headers.items()}
    status, got, text = send(method, f"{API}/acme/{path}", body and body.encode(), headers)
    return status, json.loads(text) if got["Content-Type"] == "application/json" else text, got["ETag"]

def visit(token, path, method="GET"):
    """Sends a request to the application with an issued token."""
    status, _, text = send(method, APP + path, headers={"Authorization": "Bearer " + token})
    return status, text

def until(ask):
    """Asks again until there is an answer: other nodes learn of a change within 100 ms."""
    while not (answer := ask()):
        time.sleep(0.05)
    return answer

def change(path, edit):
    """Changes an account from what it was when it was read. If somebody else was faster, reads it anew."""
    tried = []
    while True:
        found, account, etag = call("GET", path)
        if found != 200:
            return tried + [found]
        tried.append(call("PATCH", path, edit(account), If_Match=etag)[0])
        if tried[-1] != 412:
            return tried

# A key with the right create, for sign-ups, can do nothing else.
account = "accounts/" + quote(name, safe="")  # a name can have a slash
created = call("POST", "accounts", {"profile_mnemocode": name, "role": "staff"}, SIGNUP_KEY)[0]
print("sign-up", created, call("GET", account, key=SIGNUP_KEY)[0], call("DELETE", account, key=SIGNUP_KEY)[0])

def edit(read):
    if not read["locale"]:
        call("PATCH", account, {"locale": "lt"})  # somebody else, between reading and changing
    return {"role": f"{read['role']} {read['locale']}"}

print("change", *change(account, edit), call("GET", account)[1]["role"])
print("change nobody", *change("accounts/nobody", dict))

# The user of an OAuth provider. A subject can have a slash.
subject = f"a/b ü+% {name}"
identity = f"{account}/identities/1/{quote(subject, safe='')}"

def found():
    return len(call("GET", "accounts?" + urlencode({"provider_id": 1, "subject": subject}))[1]["accounts"])

print("identity", call("PUT", identity)[0], found(), call("DELETE", identity)[0], found())

# Pages are full, however few of the accounts pass the filters.
for i in range(7):
    new = {"profile_mnemocode": f"{name}-{i}", "role": name, "password": "a fine new secret" if i == 3 else None}
    shown = call("POST", "accounts", new)[1]
    if i == 1:
        since = shown["updated_at"]
query, pages = {"role": name, "status": "active", "password_set": "false", "updated_since": since, "limit": 2}, []
while not pages or "after" in query:
    page = call("GET", "accounts?" + urlencode(query))[1]
    pages.append(len(page["accounts"]))
    query.pop("after", None)
    if "next" in page:
        query["after"] = page["next"]
print("pages", *pages)

# A token for a program that reads reports.
issued, token, _ = call("POST", account + "/tokens", {"name": "nightly", "paths": ["/reports/*"], "methods": ["GET"], "expires_in": 3600})
status, text = visit(token["token"], "/orders")
refusal = json.loads(text)
print("token", issued, visit(token["token"], "/reports/1")[0], visit(token["token"], "/reports/1", "POST")[0], status, refusal["reason"])

# Support finds the refusal by the ref that the program got.
event = until(lambda: call("GET", "history?ref=" + refusal["ref"])[1]["events"])[0]
print("ref", event["event"], event["profile_mnemocode"], event["reason"])

# A service that is not behind mnemogate asks whether a token is valid, as a client of OAuth.
def by_basic(token):
    basic = base64.b64encode(f"stats:{quote(KEY, safe='')}".encode()).decode()
    return call("POST", "introspect", urlencode({"token": token}), Authorization="Basic " + basic, Content_Type="application/x-www-form-urlencoded")[1]

def by_post(token):
    form = urlencode({"token": token, "client_id": "stats", "client_secret": KEY}).encode()
    return json.loads(send("POST", f"{API}/acme/introspect", form)[2])

claims = by_basic(token["token"]), by_post(token["token"])
print("introspect", *(word for c in claims for word in (str(c["active"]).lower(), c["sub"], str(c["token"] == token["id"]).lower(), *c["amr"])))

revoked = call("DELETE", f"{account}/tokens/{token['id']}")[0]
print("revoke", revoked, str(by_basic(token["token"])["active"]).lower())
until(lambda: visit(token["token"], "/reports/1")[0] == 401)

# Support acts as the user. The application learns who that is.
acting, act, _ = call("POST", account + "/tokens", {"actor": "Anna Ö", "reason": "ticket 4711", "paths": ["/*"], "methods": ["GET"]}, SUPPORT_KEY)
actor = re.search(r"^X-Profile-Actor: (\S*)", visit(act["token"], "/orders")[1], re.M)[1]
listed = call("GET", account + "/tokens", key=SUPPORT_KEY)[1]["tokens"]
print("support", acting, unquote(actor), by_basic(act["token"])["act"]["sub"], *(t["reason"] for t in listed))

# Accounts move with their passkeys. Here one leaves and comes back.
def exported():
    return next(line for line in call("GET", "export")[1].splitlines() if f'"{name}-moves"' in line)

line = exported()
deleted = call("DELETE", account + "-moves")[0]
counts = json.loads(call("POST", "import", line + "\n", Content_Type="application/x-ndjson")[1])
print("move", deleted, counts["created"], len(json.loads(line)["passkeys"]), str(exported() == line).lower())
