-- /etc/haproxy/mnemogate.lua
local question = "http://127.0.0.1:8080/check"
local identity = { "x-profile-mnemocode", "x-company-code", "x-profile-role", "x-profile-email", "x-profile-phone",
	"x-profile-session", "x-profile-auth-time", "x-profile-auth-methods", "x-profile-token", "x-profile-actor", "x-mnemogate-assertion" }
local own = { ["host"] = true, ["connection"] = true, ["content-length"] = true, ["transfer-encoding"] = true, ["expect"] = true, ["te"] = true, ["upgrade"] = true }

core.register_action("mnemogate", { "http-req" }, function(txn)
	local headers = {}
	for name, values in pairs(txn.http:req_get_headers()) do
		if not own[name] then
			headers[name] = {}
			for _, value in pairs(values) do
				table.insert(headers[name], value)
			end
		end
	end
	headers["x-forwarded-for"] = { txn.f:src() }
	headers["x-forwarded-proto"] = { txn.f:ssl_fc() == 1 and "https" or "http" }
	headers["x-forwarded-method"] = { txn.f:method() }
	headers["x-forwarded-host"] = { txn.f:req_fhdr("host") }
	headers["x-forwarded-uri"] = { txn.f:pathq() }
	local answer = core.httpclient():get { url = question, headers = headers }
	if answer.status ~= 204 then
		local reply = txn:reply { status = answer.status or 503, body = answer.body or "" }
		for name, values in pairs(answer.headers or {}) do
			if not own[name] then
				for _, value in pairs(values) do
					reply:add_header(name, value)
				end
			end
		end
		txn:done(reply)
	end
	for _, name in ipairs(identity) do
		txn.http:req_del_header(name)
		for _, value in pairs(answer.headers[name] or {}) do
			txn.http:req_add_header(name, value)
		end
	end
end, 0)
