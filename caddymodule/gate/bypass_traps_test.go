package gate_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/bypass"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

// Caddy takes each of these, and many don't do what they seem to. A Caddyfile's line and
// what to write instead are told with each.
func TestTrapsAreToldWithTheirLineAndTheFix(t *testing.T) {
	guesttest.Environment(t)
	const (
		upstream  = "reverse_proxy localhost:9000\n"
		basicAuth = "basic_auth {\nbob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\n"
		umbra     = "company umbra {\napi_key {env.MNEMOGATE_TEST_SECRET}\ncaptcha off\n}\n"
	)
	var headers string
	for i := range 40 {
		headers += fmt.Sprintf("header /%d X Y\n", i)
	}
	opened := func(path string) string {
		return "mnemogate: public " + path + " also opens other paths of localhost:9000: a later handle_path, uri or rewrite changes the paths that it covers to them"
	}
	oneAddress := func(directive string) string {
		return directive + ": its site is on a Unix socket, and trusted_proxies_unix is not set: all clients count as one, so a few wrong passwords or keys of anybody lock out all"
	}
	type told struct{ message, at, advice string }
	for name, test := range map[string]struct {
		company string // beside acme
		sites   string // from line 9 on, or 13 with another company
		want    []told
		refused string
	}{
		"abort behind it": {sites: "example.com {\n@bad remote_ip 192.0.2.0/24\nabort @bad\nmnemogate\n" + upstream + "}",
			want: []told{{"mnemogate in example.com: abort with a matcher comes after it, so it does not protect the auth routes", "Caddyfile:12", "route { abort ...; mnemogate; ... }"}}},
		"respond behind it": {sites: "http:// {\n@down vars {env.DOWN} yes\nmnemogate\nrespond @down 503\n" + upstream + "}",
			want: []told{{"mnemogate: respond with a matcher comes after it, so it does not protect the auth routes", "Caddyfile:11", "route { respond ...; mnemogate; ... }"}}},
		"respond behind it, with a status from elsewhere": {sites: "http:// {\nmnemogate {\nbase_path /api\n}\n@down path /api/*\nrespond @down closed {env.STATUS}\n" + upstream + "}",
			want: []told{{"mnemogate: respond with a matcher comes after it, so it does not protect the auth routes", "Caddyfile:10", "route { respond ...; mnemogate; ... }"}}},
		"answers behind it that refuse nobody": {sites: "http:// {\nmnemogate {\npublic /robots.txt /healthz\n}\n@bot header User-Agent *bot*\nrespond /robots.txt none\nrespond /healthz 200\nrespond @bot \"no bots\" 200\n" + upstream + "}"},
		"errors behind it for other paths":     {sites: "http:// {\nmnemogate\nerror /vendor/* 404\nrespond /acme/v2/files/* 403\n" + upstream + "}"},
		"error behind it, in a block": {sites: "http:// {\nhandle {\nmnemogate\nerror /acme/* 404\n" + upstream + "}\n}",
			want: []told{{"mnemogate: error with a matcher comes after it, so it does not protect the auth routes", "Caddyfile:11", "route { error ...; mnemogate; ... }"}}},
		"abort behind it, in a block of its own": {sites: "http:// {\n@bad remote_ip 192.0.2.0/24\nmnemogate\nhandle @bad {\nabort\n}\n" + upstream + "}",
			want: []told{{"mnemogate: abort with a matcher comes after it, so it does not protect the auth routes", "Caddyfile:11", "route { abort ...; mnemogate; ... }"}}},
		"a cache before it": {sites: "http:// {\nroute {\n@get method GET\ncache @get\nmnemogate\n" + upstream + "}\n}",
			refused: "mnemogate: cache comes before it, and shows anybody what users have got; write cache after it: route {"},
		"a cache around it":                  {sites: "http:// {\nroute {\ncache\nhandle /acme/* {\nmnemogate\n" + upstream + "}\n}\n}", refused: "cache comes before it"},
		"a cache for what everybody may see": {sites: "http:// {\nhandle /assets/* {\ncache\nfile_server\n}\nhandle {\nmnemogate\n" + upstream + "}\n}"},
		"a cache behind it": {sites: "http:// {\nroute {\nmnemogate {\nheader X-User\n}\ncache {\nkey {\nheaders X-Profile-Mnemocode\n}\n}\n" + upstream + "}\n}",
			want: []told{{"mnemogate: cache comes after it, and shows a user what others have got, unless the application sends Vary: X-User, X-Company-Code", "Caddyfile:11", "{http.request.header.X-User} {http.request.header.X-Company-Code}"}}},
		"a cache behind it, for all companies": {sites: "http:// {\nroute {\nmnemogate {\ncompany_header X-Tenant\n}\ncache {\nkey {\nheaders X-Profile-Mnemocode X-Company-Code\n}\n}\n" + upstream + "}\n}",
			want: []told{{"mnemogate: cache comes after it, and shows a user what others have got, unless the application sends Vary: X-Profile-Mnemocode, X-Tenant", "Caddyfile:11", "{http.request.header.X-Profile-Mnemocode} {http.request.header.X-Tenant}"}}},
		"a cache whose key joins headers": {sites: "http:// {\nroute {\nmnemogate\ncache {\nkey {\nheaders X-Profile-Mnemocode X-Company-Code\n}\n}\n" + upstream + "}\n}",
			want: []told{{"mnemogate: cache comes after it, and shows a user what others have got, unless the application sends Vary: X-Profile-Mnemocode, X-Company-Code", "Caddyfile:11", "by a template, since headers are joined by -"}}},
		"headers after the answer": {sites: "http:// {\nheader {\nCache-Control max-age=60\n-Server\n}\nheader -V*\nmnemogate\n" + upstream + "}",
			want: []told{
				{"mnemogate: header comes before it but waits for the answer, and replaces Cache-Control of users' answers and refusals, which caches may then show to others", "Caddyfile:15", "handle { header ...;"},
				{"mnemogate: header comes before it but waits for the answer, and replaces Vary of users' answers and refusals, which caches may then show to others", "Caddyfile:15", "handle { header ...;"},
			}},
		"headers of good answers, in the block": {sites: "http:// {\nhandle /acme/* {\nheader {\nmatch status 2xx\nCache-Control public max-age\n}\nmnemogate\n" + upstream + "}\n}",
			want: []told{{"mnemogate: header comes before it but waits for the answer, and replaces Cache-Control of users' answers and refusals, which caches may then show to others", "Caddyfile:15", "handle { header ...;"}}},
		"a value for good answers": {sites: "http:// {\nhandle /acme/* {\nheader {\nmatch status 2xx\nCache-Control max-age=60\n}\nmnemogate\n" + upstream + "}\n}",
			want: []told{{"mnemogate: header comes before it but waits for the answer, and replaces Cache-Control of users' answers and refusals, which caches may then show to others", "Caddyfile:15", "handle { header ...;"}}},
		"headers that hide nothing":    {sites: "http:// {\nheader Cache-Control max-age=60\nheader /assets/* >Cache-Control max-age=60\nheader ?Cache-Control max-age=60\nheader {\nCache-Control no-store\nVary \"Origin, Authorization\"\n+Vary Origin\n-Server\n}\nmnemogate\nhandle {\nheader >Cache-Control max-age=60\n" + upstream + "}\n}"},
		"a cache changes no path":      {sites: "http:// {\n@api path /api/*\nroute {\nmnemogate @api {\nbase_path /api\n}\ncache {\nkey {\ntemplate \"{uri} {http.request.header.X-Profile-Mnemocode} {http.request.header.X-Company-Code}\"\n}\n}\nreverse_proxy @api localhost:9000\n}\n}"},
		"abort before it":              {sites: "http:// {\nroute {\n@bad remote_ip 192.0.2.0/24\nabort @bad\nmnemogate\n" + upstream + "}\n}"},
		"an answer without a matcher":  {sites: "http:// {\nmnemogate\nrespond ok\n}"},
		"an answer in another block":   {sites: "http:// {\nhandle /health {\nrespond /health ok\n}\nhandle {\nmnemogate\n" + upstream + "}\n}"},
		"a redirect":                   {sites: "http:// {\nroute {\nmnemogate\nredir /old /new\n" + upstream + "}\n}"},
		"an answer to what has failed": {sites: "http:// {\nmnemogate\n" + upstream + "handle_errors {\n@missing expression {err.status_code} == 404\nrespond @missing none\n}\n}"},
		"a prefix that is taken away and wanted": {sites: "http:// {\nhandle_path /api/* {\nmnemogate {\nbase_path /api\n}\n" + upstream + "}\n}",
			refused: "mnemogate: base_path /api is never found: handle_path or uri strip_prefix removes /api first; leave base_path out or, if the application needs the prefix, write handle instead, at Caddyfile:11"},
		"a prefix that is taken away and not":       {sites: "http:// {\nhandle_path /api/* {\nmnemogate\n" + upstream + "}\n}"},
		"a company of the path's name":              {sites: "http:// {\nhandle /acme/* {\nmnemogate\n" + upstream + "}\n}"},
		"a login that is elsewhere":                 {sites: "http:// {\nhandle /api/* {\nmnemogate\n" + upstream + "}\nhandle /acme/v2/* {\nmnemogate\n}\n}"},
		"a path that is rewritten by who knows how": {sites: "http:// {\nroute /api/* {\nuri replace /api/ /\nmnemogate\n" + upstream + "}\n}"},
		"a company that cannot be reached on its site": {company: umbra, sites: "a.example.com {\nmnemogate {\ncompany acme\n}\n" + upstream + "}\nb.example.com {\nhandle /api/* {\nmnemogate {\ncompany umbra\n}\nreverse_proxy localhost:9001\n}\n}",
			want: []told{{"mnemogate in b.example.com: nobody can log in: requests for /{company}/v2/auth/ do not reach it, only those for /api/* do", "Caddyfile:21", "write base_path"}}},
		"a company without a site": {company: umbra, sites: "http:// {\nmnemogate {\ncompany acme\n}\n" + upstream + "}",
			want: []told{{"company: no request for its auth routes reaches mnemogate: nobody can log in", "Caddyfile:7", "let /{company}/* reach a mnemogate"}}},
		"a company without a block": {company: umbra, sites: "http:// {\nhandle /acme/* {\nmnemogate\n" + upstream + "}\n}",
			want: []told{{"company: no request for its auth routes reaches mnemogate: nobody can log in", "Caddyfile:7", "let /{company}/* reach a mnemogate"}}},
		"companies with a block each": {company: umbra,
			sites: "http:// {\nhandle /acme/* {\nmnemogate\n" + upstream + "}\nhandle /umbra/* {\nmnemogate\n" + upstream + "}\n}"},
		"basic_auth behind it": {sites: "http:// {\nmnemogate\n" + basicAuth + upstream + "}",
			want: []told{{"mnemogate: basic_auth comes after it, and no request passes both: each needs the Authorization header", "Caddyfile:10", "remove basic_auth"}}},
		"basic_auth beside it": {sites: "http:// {\nhandle /admin/* {\n" + basicAuth + "reverse_proxy localhost:9001\n}\nhandle {\nmnemogate\n" + upstream + "}\n}"},
		"files before it": {sites: "http:// {\nroot * /srv\ntry_files {path} /index.html\nmnemogate {\nrole admin /admin/*\n}\nfile_server\n}",
			want: []told{{"mnemogate: nobody can log in: try_files comes before it, and only paths of files reach it", "Caddyfile:12", "handle { try_files ...; file_server }"}}},
		"files and a script before it": {sites: "http:// {\ntry_files {path} {path}/ /index.php?{query}\nhandle {\nmnemogate\n" + upstream + "}\n}",
			want: []told{{"mnemogate: nobody can log in: try_files comes before it, and only paths of files reach it", "Caddyfile:12", "handle { try_files ...; file_server }"}}},
		"files or an error before it": {sites: "http:// {\ntry_files {path} =404\nmnemogate\nfile_server\n}",
			want: []told{{"mnemogate: nobody can log in: try_files comes before it, and only paths of files reach it", "Caddyfile:11", "handle { try_files ...; file_server }"}}},
		"files before it, if they are there": {sites: "http:// {\ntry_files {path} {path}.html\nmnemogate\nfile_server\n}"},
		"files before it, for other paths":   {sites: "http:// {\n@page {\nnot path /acme/*\nfile {path} /index.html\n}\nrewrite @page {file_match.relative}\nmnemogate\nfile_server\n}"},
		"paths that the block leaves out": {
			sites: "http:// {\nhandle /api/* {\nmnemogate {\nbase_path /api\npublic /health /api/health\nrole admin /admin/* /API/x/* /a* *.pdf\nfresh 5m /[ab]\n}\n" + upstream + "}\n}",
			want: []told{
				{"mnemogate: public /health never matches: only requests for /api/* reach it", "Caddyfile:11", "handle and route leave the prefix"},
				{"mnemogate: role /admin/* never matches: only requests for /api/* reach it", "Caddyfile:11", "handle and route leave the prefix"},
			},
		},
		"paths with a prefix that is taken away": {sites: "http:// {\nhandle_path /api/* {\nmnemogate {\nrole admin /api/admin/* /admin/* /apis\n}\n" + upstream + "}\n}",
			want: []told{{"mnemogate: role /api/admin/* never matches: handle_path or uri strip_prefix removes /api first", "Caddyfile:11", "without that prefix"}}},
		"paths that one of two blocks has":  {sites: "(gate) {\nmnemogate {\npublic /health\nrole admin /api/admin/*\n}\n" + upstream + "}\nhttp:// {\nhandle /api/* {\nimport gate\n}\nhandle {\nimport gate\n}\n}"},
		"paths of who knows what":           {sites: "http:// {\nroute /api/* {\nuri replace /api/ /\nmnemogate {\nrole admin /admin/*\n}\n" + upstream + "}\n}"},
		"paths where a matcher has several": {sites: "http:// {\n@api path /api/* /admin/*\nhandle @api {\nmnemogate {\nrole admin /admin/*\n}\n" + upstream + "}\nhandle {\nmnemogate\n}\n}"},
		"paths with a prefix that is taken away later": {sites: "http:// {\nmnemogate {\nrole admin /admin/* /v1/x/*\nfresh 5m /a /v1/a\npublic /b\n}\nhandle_path /v1/* {\n" + upstream + "}\n}",
			want: []told{{"mnemogate: role /admin/* does not cover all requests that reach localhost:9000 by this path: a later handle_path, uri or rewrite changes other paths to it", "Caddyfile:10", "with the prefix that is removed"}}},
		"paths of another application, beside a prefix that is taken away": {sites: "http:// {\nmnemogate {\nrole admin /admin/*\nfresh 5m /pay\n}\nhandle /admin/* {\nreverse_proxy localhost:9001\n}\nhandle_path /v1/* {\n" + upstream + "}\n}",
			want: []told{{"mnemogate: fresh /pay does not cover all requests that reach localhost:9000 by this path: a later handle_path, uri or rewrite changes other paths to it", "Caddyfile:10", "with the prefix that is removed"}}},
		"paths that are rewritten later": {sites: "http:// {\nmnemogate {\nfresh 5m /a\n}\nhandle {\nuri replace /x /\n" + upstream + "}\n}",
			want: []told{{"mnemogate: fresh /a does not cover all requests that reach localhost:9000 by this path: a later handle_path, uri or rewrite changes other paths to it", "Caddyfile:10", "after the rewrite"}}},
		"paths that the proxy rewrites": {sites: "http:// {\nmnemogate {\nfresh 5m /a /*\n}\nreverse_proxy localhost:9000 {\nrewrite {query.path}\n}\n}",
			want: []told{{"mnemogate: fresh /a does not cover all requests that reach localhost:9000 by this path: a later handle_path, uri or rewrite changes other paths to it", "Caddyfile:10", "after the rewrite"}}},
		"paths that get a prefix, or are all the same": {sites: "http:// {\nmnemogate {\nfresh 5m /a\n}\nhandle /x/* {\nrewrite * /index.php\n" + upstream + "}\nhandle {\nreverse_proxy localhost:9000 {\nrewrite /app{uri}\n}\n}\n}"},
		"a path that another one becomes": {sites: "http:// {\nmnemogate {\nrole admin /admin/*\n}\nhandle /console {\nrewrite * /admin/console\n" + upstream + "}\n}",
			want: []told{{"mnemogate: role /admin/* does not cover all requests that reach localhost:9000 by this path: a later handle_path, uri or rewrite changes other paths to it", "Caddyfile:10", "after the rewrite"}}},
		"a path that others become by a prefix": {sites: "http:// {\nmnemogate {\nrole admin /admin/*\n}\nhandle /x/* {\nrewrite * /admin{uri}\n" + upstream + "}\n}",
			want: []told{{"mnemogate: role /admin/* does not cover all requests that reach localhost:9000 by this path: a later handle_path, uri or rewrite changes other paths to it", "Caddyfile:10", "after the rewrite"}}},
		"a path that all become": {sites: "http:// {\nmnemogate {\nfresh 5m /Admin/x /admin/y\n}\nreverse_proxy localhost:9000 {\nrewrite /admin/X\n}\n}",
			want: []told{{"mnemogate: fresh /Admin/x does not cover all requests that reach localhost:9000 by this path: a later handle_path, uri or rewrite changes other paths to it", "Caddyfile:10", "after the rewrite"}}},
		"a path that some become, behind a prefix that is removed": {sites: "http:// {\nhandle /x/* {\nuri strip_prefix /x\nmnemogate {\nmfa /admin/* /X*\n}\nhandle {\nrewrite /c /admin/console\n" + upstream + "}\n}\n}",
			want: []told{{"mnemogate: mfa /admin/* does not cover all requests that reach localhost:9000 by this path: a later handle_path, uri or rewrite changes other paths to it", "Caddyfile:12", "after the rewrite"}}},
		"paths that become others of the same option":            {sites: "http:// {\nmnemogate {\nrole admin /admin/* /console /x*\n}\n@more path /console /ADMIN/old/* /x/*\nhandle @more {\nrewrite * /admin/console\n" + upstream + "}\n}"},
		"paths of a block that become others of the same option": {sites: "http:// {\nhandle /acme/* {\nmnemogate {\nrole admin /acme/*\n}\nhandle {\nrewrite /acme/x /acme/admin/x\n" + upstream + "}\n}\n}"},
		"paths of a block that is removed":                       {sites: "http:// {\nmnemogate {\nrole admin /admin /admin.* /admin/*\n}\nhandle_path /admin/* {\n" + upstream + "}\n}"},
		"paths of a script, and a method that is changed":        {sites: "http:// {\nmnemogate {\nrole admin /admin/*\n}\nmethod GET\nphp_fastcgi localhost:9000\n}"},
		"a check that the block leaves out": {sites: "http:// {\nhandle /acme/* {\nmnemogate {\ncheck /check\nhealth /acme/up\n}\n}\n}",
			want: []told{{"mnemogate: check /check never matches: only requests for /acme/* reach it", "Caddyfile:11", "handle and route leave the prefix"}}},
		"a header that is taken out again": {sites: "http:// {\nrequest_header -X-Profile-Mnemocode\nmnemogate\n" + upstream + "}",
			refused: "mnemogate: request_header X-Profile-Mnemocode comes after it and changes X-Profile-Mnemocode, which names the user to the application; remove it: mnemogate removes what clients send and sets the header itself, at Caddyfile:11"},
		"a header of another spelling": {sites: "http:// {\nmnemogate {\nheader X-User\n}\nrequest_header x_user bob\n" + upstream + "}",
			refused: "mnemogate: request_header X_user comes after it and changes X-User"},
		"headers that begin alike": {sites: "http:// {\nmnemogate\nrequest_header -X-Comp*\n" + upstream + "}", refused: "changes X-Company-Code"},
		"a header that the proxy sets": {sites: "http:// {\nmnemogate\nreverse_proxy localhost:9000 {\nheader_up X-Company-Code acme\n}\n}",
			refused: "mnemogate: header_up X-Company-Code comes after it"},
		"a header as a variable of a script": {sites: "http:// {\nmnemogate\nphp_fastcgi localhost:9000 {\nenv HTTP_X_PROFILE_MNEMOCODE {header.X-User}\n}\n}",
			refused: "mnemogate: php_fastcgi env HTTP_X_PROFILE_MNEMOCODE comes after it and changes X-Profile-Mnemocode, which names the user to the application; remove it: mnemogate removes what clients send and sets the header itself, at Caddyfile:10"},
		"a header as a variable of FastCGI": {sites: "http:// {\nmnemogate {\nheader X-User\n}\nreverse_proxy localhost:9000 {\ntransport fastcgi {\nenv HTTP_X_USER bob\n}\n}\n}",
			refused: "mnemogate: php_fastcgi env HTTP_X_USER comes after it and changes X-User"},
		"other variables of a script": {sites: "http:// {\nmnemogate\nphp_fastcgi localhost:9000 {\nenv APP_ENV prod\nenv X_PROFILE_MNEMOCODE none\nenv HTTP_X_REQUEST_START now\n}\n}"},
		"a header that another decides on": {sites: "http:// {\nmnemogate\nforward_auth localhost:9091 {\nuri /check\ncopy_headers X-Profile-Mnemocode\n}\n" + upstream + "}",
			refused: "changes X-Profile-Mnemocode"},
		"other headers":       {sites: "http:// {\nrequest_header X-Request-Start now\nmnemogate\nreverse_proxy localhost:9000 {\nheader_up X-User {http.auth.user.id}\n}\n}"},
		"a header before it":  {sites: "http:// {\nroute {\nrequest_header -X-Profile-Mnemocode\nmnemogate\n" + upstream + "}\n}"},
		"a header without it": {sites: "http:// {\nmnemogate\n" + upstream + "}\nhttp://mock.example {\nreverse_proxy localhost:9001 {\nheader_up X-Profile-Mnemocode alice\n}\n}"},
		"a matcher on one of two, in a block of two sites": {sites: "a.example.com, b.example.com {\nhandle /x/* {\nmnemogate /x/api/*\n" + upstream + "}\n}",
			refused: "mnemogate in a.example.com, b.example.com: requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent"},
		"a matcher that leaves out a path": {sites: "http:// {\n@app not path /health\nmnemogate @app\n" + upstream + "}",
			refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent"},
		"a matcher that leaves out a path, and an answer to another": {sites: "http:// {\n@app not path /health\nmnemogate @app\nrespond /healthy 200\n" + upstream + "}",
			refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent"},
		"a matcher that leaves out files, and an answer to others": {sites: "http:// {\nroot * /srv\n@static file {path}.html\n@app not file\nmnemogate @app\nroute {\nfile_server @static\n" + upstream + "}\n}",
			refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent"},
		"a matcher that leaves out paths, and an answer to one": {sites: "http:// {\n@app not path /health /healthz/x\nmnemogate @app\nrespond /healthz/* 200\n" + upstream + "}",
			refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent"},
		"a matcher that leaves out paths, and answers to them by a method": {sites: "http:// {\n@app not path /a /b\n@get {\nmethod GET\npath /a\n}\nmnemogate @app\nrespond @get 200\nrespond /b 200\n" + upstream + "}",
			refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent"},
		"a block on one of two": {sites: "http:// {\nhandle /api/* {\nmnemogate\n}\n" + upstream + "}",
			refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent"},
		"a matcher before an invoked route": {sites: "&(app) {\n" + upstream + "}\nhttp:// {\nmnemogate /api/*\ninvoke app\n}",
			refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy with whatever identity headers the client sent"},
		"a matcher before a proxy that copies some answers": {sites: "http:// {\nmnemogate /api/*\nreverse_proxy localhost:9000 {\n@err status 5xx\nhandle_response @err {\nheader Cache-Control no-store\ncopy_response 503\n}\n}\n}",
			refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy"},
		"a matcher before a proxy that goes on after some answers": {sites: "http:// {\nmnemogate /api/*\nreverse_proxy localhost:9000 {\n@err status 5xx\nhandle_response @err {\nheader Cache-Control no-store\n}\n}\n}",
			refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy"},
		// Both outer handle blocks get the group of those in the named route.
		"a block of a named route that Caddy skips": {sites: "&(gate) {\nhandle /health {\nrespond ok\n}\nhandle {\nmnemogate\n}\n}\nexample.com {\nhandle /api/* {\ninvoke gate\n" + upstream + "}\nhandle {\nrespond 404\n}\n}",
			refused: "mnemogate in example.com: Caddy skips it, because the requests have taken another route of its group: Caddy gives groups of named routes and of sites the same names; write the named route as a snippet instead: (name) { ... }, and import name in place of invoke name, at Caddyfile:14"},
		"blocks of a named route, behind blocks that pass some on": {sites: "&(gate) {\nhandle /health {\nrespond ok\n}\nhandle {\nmnemogate\n}\n}\nexample.com {\nroute {\nhandle /api/* {\nvars x 1\n}\nhandle {\nvars x 2\n}\ninvoke gate\n" + upstream + "}\n}",
			refused: "mnemogate in example.com: Caddy skips it"},
		"blocks beside one another with others between": {sites: "example.com {\nroute {\nhandle /api/* {\nvars x 1\n}\nvars x 2\nhandle {\nmnemogate\n" + upstream + "}\n}\n}"},
		"blocks beside one another with others between, that some requests skip": {sites: "example.com {\nroute {\nhandle /static/* {\nheader Cache-Control max-age=86400\n}\nencode gzip\nhandle {\nmnemogate\n}\n" + upstream + "}\n}",
			refused: "mnemogate in example.com: requests that its matcher leaves out reach reverse_proxy"},
		"blocks of a named route, behind blocks that pass not all on": {sites: "&(gate) {\nhandle /health {\nrespond ok\n}\nhandle {\nmnemogate\n}\n}\nexample.com {\nroute {\nhandle /api/* {\nvars x 1\n}\nhandle /v1/* {\nvars x 2\n}\ninvoke gate\n" + upstream + "}\n}",
			refused: "mnemogate in example.com: requests that its matcher leaves out reach reverse_proxy"},
		"a block for a file, with a rewrite": {sites: "http:// {\n@maintenance file /.maintenance\nhandle @maintenance {\nrewrite * /maintenance.php\n}\nhandle /media/* {\n" + upstream + "}\nhandle {\nmnemogate\n" + upstream + "}\n}",
			want: []told{{"mnemogate: requests may also reach localhost:9000 without it, with whatever identity headers the client sent", "Caddyfile:18", "its option public"}}},
		"a rewrite to another path if there is a file": {sites: "http:// {\n@maintenance file /maintenance.html\nrewrite @maintenance /maintenance.html\nmnemogate\n" + upstream + "}"},
		"many matchers behind a rewrite":               {sites: "example.com {\nrewrite /a /b\n" + headers + "mnemogate\n" + upstream + "}"},
		"a block of a named route that Caddy runs":     {sites: "&(gate) {\nhandle {\nmnemogate\n" + upstream + "}\n}\nexample.com {\nhandle /api/* {\ninvoke gate\n}\nhandle {\ninvoke gate\n}\n}"},
		"twice, the second in a block": {sites: "example.com {\nmnemogate\nhandle /api/* {\nmnemogate\n" + upstream + "}\nhandle {\nrespond 404\n}\n}",
			refused: "mnemogate in example.com: the same requests pass it twice, and the second one finds no token; remove one of the two"},
		"twice, with a prefix": {sites: "http:// {\nmnemogate\nmnemogate {\nbase_path /api\n}\n" + upstream + "}",
			refused: "mnemogate: the same requests pass it twice, and the second one finds no token"},
		"twice, with a matcher": {sites: "http:// {\n@api path /api/*\nmnemogate @api\nmnemogate @api\nhandle @api {\n" + upstream + "}\n}",
			refused: "mnemogate: the same requests pass it twice, and the second one finds no token"},
		"no login but for errors": {sites: "http:// {\nhandle /api/* {\nmnemogate\n" + upstream + "}\nhandle_errors {\nmnemogate\n" + upstream + "}\n}",
			want: []told{{"mnemogate: nobody can log in: requests for /{company}/v2/auth/ do not reach it, only those for /api/* do", "Caddyfile:11", "write base_path"}}},
		"behind it and the proxy": {sites: "http:// {\nroute {\nmnemogate\nhandle {\n" + upstream + "}\nmnemogate\n}\n}",
			refused: "mnemogate: it comes after reverse_proxy, which passes no request on to it; write it before that"},
		"behind blocks": {sites: "http:// {\nroute {\nhandle /x/* {\n" + upstream + "}\nhandle {\nrespond 404\n}\nmnemogate\n}\n}",
			refused: "mnemogate: it comes after reverse_proxy, which passes no request on to it"},
		"behind an answer": {sites: "http:// {\nroute {\nrespond 404\nhandle /api/* {\nmnemogate\n" + upstream + "}\n}\n}",
			refused: "mnemogate: it comes after respond or redir, which passes no request on to it; write it before that, and both into a route block"},
		"PHP past it":              {sites: "http:// {\nmnemogate /acme/*\nphp_fastcgi localhost:9000\n}", refused: "mnemogate: requests that its matcher leaves out reach reverse_proxy"},
		"PHP behind it":            {sites: "http:// {\nmnemogate\nphp_fastcgi localhost:9000\n}"},
		"PHP with its own matcher": {sites: "http:// {\n@a path /acme/*\nmnemogate @a\nphp_fastcgi @a localhost:9000\n}"},
		"public paths that lose a prefix later": {sites: "http:// {\nmnemogate {\npublic /docs/* /x\n}\nhandle {\nuri strip_prefix /docs\n" + upstream + "}\n}",
			want: []told{{opened("/docs/*"), "Caddyfile:10", "after the rewrite"}}},
		"public paths that lose a prefix later, by a matcher": {sites: "http:// {\nmnemogate {\npublic /docs/*\n}\nhandle {\nuri /docs/* strip_prefix /docs\n" + upstream + "}\n}",
			want: []told{{opened("/docs/*"), "Caddyfile:10", "after the rewrite"}}},
		"public paths that lose a prefix in one of two blocks": {sites: "http:// {\nmnemogate {\npublic /docs/*\n}\nhandle_path /docs/* {\n" + upstream + "}\nhandle {\nreverse_proxy tcp/127.0.0.1:9000\n}\n}",
			want: []told{{opened("/docs/*"), "Caddyfile:10", "after the rewrite"}}},
		"public paths that change in ways unknown": {sites: "http:// {\nmnemogate {\npublic /docs/* /x/*\n}\nhandle /docs/* {\nuri replace /docs/ /\n" + upstream + "}\n}",
			want: []told{{opened("/docs/*"), "Caddyfile:10", "after the rewrite"}}},
		"public paths of a prefix that all lose":             {sites: "http:// {\nmnemogate {\npublic /api/docs/*\n}\nhandle_path /api/* {\n" + upstream + "}\n}"},
		"public paths that are public without a prefix, too": {sites: "http:// {\nmnemogate {\npublic /docs/a/* /a/*\n}\nhandle {\nuri strip_prefix /docs\n" + upstream + "}\n}"},
		"paths that some requests get by a rewrite": {sites: "http:// {\nmnemogate {\nrole admin /admin/*\n}\nhandle {\nuri /v1/* strip_prefix /v1\n" + upstream + "}\n}",
			want: []told{{"mnemogate: role /admin/* does not cover all requests that reach localhost:9000 by this path: a later handle_path, uri or rewrite changes other paths to it", "Caddyfile:10", "with the prefix that is removed"}}},
		"a prefix that is added": {sites: "http:// {\nrewrite * /v1{uri}\nmnemogate\n" + upstream + "}",
			want: []told{{"mnemogate: nobody can log in: requests for /{company}/v2/auth/ do not reach it, only those for /v1* do", "Caddyfile:11", "handle { rewrite ...; reverse_proxy ... }"}}},
		"a prefix that is added, and paths without": {sites: "http:// {\nrewrite * /v1{path}\nmnemogate {\nbase_path /v1\npublic /health /v1/x\n}\n" + upstream + "}",
			want: []told{{"mnemogate: public /health never matches: only requests for /v1* reach it", "Caddyfile:11", ""}}},
		"one path for all": {sites: "http:// {\nrewrite * /index.php?{query}\nmnemogate\n" + upstream + "}",
			want: []told{{"mnemogate: nobody can log in: requests for /{company}/v2/auth/ do not reach it, only those for /index.php do", "Caddyfile:11", "handle { rewrite ...; reverse_proxy ... }"}}},
		"a prefix that some paths get":    {sites: "http:// {\nrewrite /x/* /v1{uri}\nmnemogate\n" + upstream + "}"},
		"a prefix that is added after it": {sites: "http:// {\nmnemogate {\npublic /x\nrole admin /admin/*\n}\nhandle {\nrewrite * /v1{uri}\n" + upstream + "}\n}"},
		"probes of a site with a name": {sites: "http://example.com {\nmnemogate {\nhealth /health\n}\n" + upstream + "}",
			want: []told{{"mnemogate in example.com: health is for requests to example.com: Caddy answers 200 for other hosts, such as those of a load balancer that asks by address, even if the node is down", "Caddyfile:10", "as Host"}}},
		"probes of a site with a name, and others refused": {sites: "http://example.com {\nmnemogate {\nhealth /health\n}\n" + upstream + "}\nhttp:// {\nrespond 404\n}"},
		"probes of a site for any host":                    {sites: "http:// {\nmnemogate {\nhealth /health\n}\n" + upstream + "}"},
		"a Unix socket": {sites: "http:// {\nbind unix//run/caddy.sock\nmnemogate {\ncheck /check\n}\n" + upstream + "}",
			want: []told{{oneAddress("mnemogate"), "Caddyfile:11", "trusted_proxies_unix"}}},
		"a Unix socket beside a port": {sites: "http:// {\nbind 127.0.0.1 unix//run/caddy.sock|0660\nmnemogate\n" + upstream + "}",
			want: []told{{oneAddress("mnemogate"), "Caddyfile:11", "trusted_proxies_unix"}}},
		"the accounts API on a Unix socket": {sites: "http:// {\nbind unix//run/caddy.sock\nmnemogate_accounts {\nkey shop {env.MNEMOGATE_TEST_SECRET}\n}\n}\nhttp://:8080 {\nmnemogate\n}",
			want: []told{{oneAddress("mnemogate_accounts"), "Caddyfile:11", "trusted_proxies_unix"}}},
		"the accounts API for everyone": {sites: "accounts.example.com {\nmnemogate_accounts {\nkey shop {env.MNEMOGATE_TEST_KEY}\n}\n}\nhttp:// {\nmnemogate\n" + upstream + "}",
			want: []told{{"mnemogate_accounts in accounts.example.com: everyone who can reach its site can try keys", "Caddyfile:10", "abort @others"}}},
		"the accounts API for some":          {sites: "accounts.example.com {\n@others not remote_ip 10.0.0.0/24\nabort @others\nmnemogate_accounts {\nkey shop {env.MNEMOGATE_TEST_SECRET}\n}\n}"},
		"the accounts API at home":           {sites: "accounts.example.com {\nbind 10.0.0.5\nmnemogate_accounts {\nkey shop {env.MNEMOGATE_TEST_SECRET}\n}\n}"},
		"the accounts API with certificates": {sites: "accounts.example.com {\ntls {\nclient_auth {\nmode require\n}\n}\nmnemogate_accounts {\nkey shop {env.MNEMOGATE_TEST_SECRET}\n}\n}"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := logged(t, adapted(t, test.company, test.sites))
			if (test.refused != "") != (err != nil) || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Fatalf("got %v, want %q", err, test.refused)
			}
			got = slices.DeleteFunc(got, func(e entry) bool { return strings.HasPrefix(e.Msg, "mnemogate_accounts key") })
			if len(got) != len(test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			for i, want := range test.want {
				if got[i].Msg != want.message || got[i].At != want.at || !strings.Contains(got[i].Advice, want.advice) {
					t.Errorf("got %q, want %q", got[i], want)
				}
			}
		})
	}
}

// Each trap of the table is told of its example, and of nothing in the corrected one.
func TestEveryTrapIsToldOfItsExample(t *testing.T) {
	guesttest.Environment(t)
	const more = "passkeys {\nrp_id example.com\n}\ncompany umbra {\napi_key {env.MNEMOGATE_TEST_SECRET}\ncaptcha off\n}\n"
	for _, trap := range bypass.Traps {
		told := func(sites string) (all []string) {
			entries, err := logged(t, adapted(t, more, sites))
			for _, e := range entries {
				all = append(all, e.Msg+"; "+e.Advice)
			}
			if err != nil {
				all = append(all, err.Error())
			}
			return slices.DeleteFunc(all, func(told string) bool { return strings.HasPrefix(told, "mnemogate_accounts key") })
		}
		text := regexp.MustCompile(": " + regexp.MustCompile(`%(\\\[1\\\])?s`).ReplaceAllString(regexp.QuoteMeta(trap.Message+"; "+trap.Advice), ".+"))
		if got := told(trap.Example); len(got) != 1 || !text.MatchString(got[0]) || strings.Contains(got[0], "provision") != trap.Refused {
			t.Errorf("%s: got %q, want %q", trap.Example, got, text)
		}
		if got := told(trap.Corrected); len(got) > 0 {
			t.Errorf("%s: got %q", trap.Corrected, got)
		}
	}
}

// A page on which the passkeys of its company can't work is told of, with its line.
func TestSitesOutsideThePasskeysAreToldOf(t *testing.T) {
	guesttest.Environment(t)
	for _, c := range []struct{ hosts, options, passkeys, want string }{
		{"login.example.org", "login_page", "", "login_page"},
		{"login.example.com", "login_page", "", "login_page"}, // not among the origins
		{"login.example.com", "login_page", "origins https://login.example.com:8443", ""},
		{"example.org, example.com", "login_page\nself_service", "", ""},
		{"*.com", "login_page", "", ""},
		{"*.example.org", "login_page", "", "login_page"},
		{"http://", "login_page", "", ""},
		{"example.org", "", "", ""},
		{"example.org", "self_service", "", "self_service"},
		{"api.example.com", "self_service", "", ""},
		{"example.org", "self_service\ncors https://example.com", "", ""},
	} {
		got, err := logged(t, adapted(t, "passkeys {\nrp_id example.com\n"+c.passkeys+"\n}\n",
			c.hosts+" {\nmnemogate {\n"+c.options+"\n}\nreverse_proxy localhost:9000\n}"))
		must(t, err)
		want := c.want + ": passkeys of company acme do not work on this site: its rp_id is example.com"
		if (len(got) > 0) != (c.want != "") || len(got) > 0 && (!strings.Contains(got[0].Msg, want) || got[0].At != "Caddyfile:14" || !strings.Contains(got[0].Advice, "correct rp_id or origins")) {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}

// Tokens that users may issue need a site where they can.
func TestTokensByUsersNeedSelfService(t *testing.T) {
	guesttest.Environment(t)
	for options, warned := range map[string]bool{"self_service": false, "": true, "self_service\ncompany acme": true} {
		told, err := validated(t, adapted(t, "company other {\napi_key off\ncaptcha off\nissued_tokens {\nby_users\n}\n}\n", "http:// {\nmnemogate {\n"+options+"\n}\n}"))
		must(t, err)
		if got := fmt.Sprint(told); strings.Contains(got, "issued_tokens by_users: no site that serves the company has self_service") != warned {
			t.Errorf("%q: got %q", options, got)
		}
	}
}

// What mnemogate takes from inside Caddy is still there: the text with which caddy validate
// ends.
func TestCaddyStillTellsOfValidation(t *testing.T) {
	guesttest.Environment(t)
	told, err := validated(t, adapted(t, "", "http:// {\nrespond ok\n}"))
	must(t, err)
	if got, want := fmt.Sprint(told), "no site has the directive mnemogate"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// As docs/configuration.md says, Caddy drops what a named route does after its first handler, but
// not in a block.
func TestCaddyStillDropsHandlersOfNamedRoutes(t *testing.T) {
	guesttest.Environment(t)
	for routes, kept := range map[string]bool{"header X-A 1\nmnemogate": false, "route {\nheader X-A 1\nmnemogate\n}": true} {
		config := adapted(t, "", "&(gate) {\n"+routes+"\n}\nhttp:// {\ninvoke gate\n}")
		if got := strings.Contains(string(config), `"handler":"mnemogate"`); got != kept {
			t.Errorf("%s: adapted to %s", routes, config)
		}
	}
}
