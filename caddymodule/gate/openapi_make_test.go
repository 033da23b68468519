package gate

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/openapi"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type (
	object = openapi.Object
	member = openapi.Member
)

var (
	ref         = openapi.Ref
	jsonContent = openapi.JSON
)

// makeOpenAPI returns the OpenAPI 3.1 document of the auth routes, openapi.json.
// What a route takes and may answer is read from the table of the routes;
// openapi_text_test.go has the words, and the fields of each answer.
func makeOpenAPI() ([]byte, error) {
	doc := &documentParts{}
	paths := object{}
	for i := range flows.Routes {
		r := &flows.Routes[i]
		paths = append(paths, member{"/{company_code}/v2/" + r.Path, object{
			{"parameters", []any{ref("parameters", "company_code")}},
			{"post", doc.operation(r)},
		}})
	}
	paths = append(paths, member{"/{company_code}/" + challengePath, object{
		{"parameters", []any{ref("parameters", "company_code")}},
		{"get", doc.challenge()},
	}})
	paths = append(paths, member{"/{company_code}/" + clientPath, object{
		{"parameters", []any{ref("parameters", "company_code")}},
		{"get", doc.clientConfig()},
	}})
	paths = append(paths, member{"/{company_code}/" + sessionPath, append(object{
		{"parameters", []any{ref("parameters", "company_code")}},
	}, doc.session()...)})
	b, err := openapi.Append(nil, "", object{
		{"openapi", "3.1.0"},
		{"info", object{
			{"title", "Authentication and access recovery"},
			{"version", "v2"},
			{"description", apiDescription},
			{"license", object{{"name", "Apache 2.0"}, {"identifier", "Apache-2.0"}}},
		}},
		{"servers", []any{object{{"url", "/"}, {"description", "This server"}}}},
		{"tags", []any{
			object{{"name", "login"}, {"description", "From a login id, or the code of a provider, to an authorized session, and to its end."}},
			object{{"name", "recovery"}, {"description", "For users who have lost their password: to a new one."}},
		}},
		{"paths", paths},
		{"components", object{
			{"securitySchemes", securitySchemes},
			{"parameters", object{{"company_code", companyParameter}}},
			{"schemas", append(doc.schemas, member{"Disclaimer", disclaimerSchema}, member{"Error", errorSchema()})},
			{"responses", doc.responses},
			{"examples", doc.examples},
		}},
	})
	return append(b, '\n'), err
}

// documentParts are the components that the operations refer to, each in the
// order of its first use.
type documentParts struct {
	schemas, responses, examples object
}

func (d *documentParts) operation(r *flows.Route) object {
	name := strings.TrimPrefix(r.Path, "auth/")
	tag := "login"
	if strings.HasPrefix(name, "recovery/") {
		tag = "recovery"
	}
	texts := routeTexts[r.Path]
	o := object{
		{"operationId", strings.ReplaceAll(name, "/", "_")},
		{"tags", []string{tag}},
		{"summary", texts.summary},
		{"description", texts.description + " " + takes(r) + takesNothing(r)},
		{"security", []any{security(r)}},
	}
	if len(r.Fields()) > 0 {
		o = append(o, member{"requestBody", requestBody(r, texts.example)})
	}
	return append(o, member{"responses", d.answers(d.success(r), errorsOf(r))})
}

// challenge is the operation that gives a challenge of captcha pow.
func (d *documentParts) challenge() object {
	d.schemas.AddOnce("Challenge", func() any { return challengeSchema })
	d.examples.AddOnce("Challenge", func() any { return object{{"value", challengeExample}} })
	success := object{
		{"description", "A challenge."},
		{"content", jsonContent(ref("schemas", "Challenge"), member{"examples", object{{"Challenge", ref("examples", "Challenge")}}})},
	}
	return object{
		{"operationId", "captcha"},
		{"tags", []string{"login"}},
		{"summary", "Get a challenge, where the captcha is work"},
		{"description", challengeDescription},
		{"security", []any{object{{"apiKey", []any{}}}}},
		{"responses", d.answers(success, []*wire.Error{
			wire.ErrAPIKeyMissing, wire.ErrAPIKeyInvalid, wire.ErrNoRoute, wire.ErrUnavailable, wire.ErrService,
		})},
	}
}

// session are the operations on the session of a token.
func (d *documentParts) session() (operations object) {
	const own, cookie = "session", "cookie"
	for _, o := range []struct {
		method, id, summary, description string
		answer                           string
		security                         []any
		errs                             []*wire.Error
	}{
		{
			"get", "session", "Ask where a session is", currentDescription, "Session",
			[]any{securedBy("apiKey", own), securedBy("apiKey", cookie)},
			[]*wire.Error{wire.ErrAPIKeyMissing, wire.ErrAPIKeyInvalid, wire.ErrHeaderMissing, wire.ErrHeaderInvalid, wire.ErrTokenInvalid, wire.ErrTokenExpired},
		},
		{
			"post", "session_cookie", "Put an authorized session into a cookie", cookieDescription, "Session",
			[]any{securedBy("apiKey", own)},
			slices.Concat([]*wire.Error{wire.ErrAPIKeyMissing, wire.ErrAPIKeyInvalid, wire.ErrMethod}, flows.TokenErrors),
		},
		{
			"delete", "session_end", "End the session in the cookie", cookieEndDescription, "Done",
			[]any{securedBy(cookie)},
			append([]*wire.Error{wire.ErrMethod}, flows.TokenErrors...),
		},
	} {
		d.schemas.AddOnce("Session", func() any { return sessionSchema() })
		d.examples.AddOnce("Session", func() any { return object{{"value", sessionExample}} })
		success := object{
			{"description", o.summary + "."},
			{"content", jsonContent(ref("schemas", o.answer), member{"examples", object{{o.answer, ref("examples", o.answer)}}})},
		}
		operations = append(operations, member{o.method, object{
			{"operationId", o.id},
			{"tags", []string{"login"}},
			{"summary", o.summary},
			{"description", o.description},
			{"security", o.security},
			{"responses", d.answers(success, append(o.errs, wire.ErrUnavailable, wire.ErrService))},
		}})
	}
	return operations
}

func securedBy(schemes ...string) (needs object) {
	for _, scheme := range schemes {
		needs = append(needs, member{scheme, []any{}})
	}
	return needs
}

// sessionSchema has what any step's answer tells of its session, but for the token.
func sessionSchema() object {
	var states []any
	for _, state := range record.States[1:] {
		states = append(states, state)
	}
	properties := object{
		{"status", object{{"type", "string"}, {"enum", []any{"success"}}}},
		{"session_state", append(slices.Clone(fieldSchemas["session_state"]), member{"enum", states})},
	}
	for _, name := range []string{
		"expires_in", "profile_mnemocode", "disclaimers_required", "captcha_required", "user_phone", "control_question",
		"password_regex", "password_regex_description",
	} {
		properties = append(properties, member{name, fieldSchemas[name]})
	}
	return object{
		{"type", "object"},
		{"description", "Where a session is, with what the answer held that led there."},
		{"required", []string{"status", "session_state", "expires_in"}},
		{"properties", properties},
	}
}

// takes is a sentence on the token that a route takes.
func takes(r *flows.Route) string {
	switch {
	case !r.TakesToken():
		return "Takes no session token."
	case len(r.From) == len(record.States)-1:
		return "Takes a token in any state."
	}
	states := make([]string, len(r.From))
	for i, s := range r.From {
		states[i] = "`" + string(s) + "`"
	}
	return "Takes a token in state " + strings.Join(states, " or ") + "."
}

// takesNothing is a sentence on the body of a route that has no fields. The document
// has no body there, or generated clients would ask for one.
func takesNothing(r *flows.Route) string {
	if len(r.Fields()) > 0 {
		return ""
	}
	return " Send no body; an empty JSON object is accepted, too."
}

func security(r *flows.Route) object {
	needs := object{{"apiKey", []any{}}}
	if r.TakesToken() {
		needs = append(needs, member{"session", []any{}})
	}
	return needs
}

func requestBody(r *flows.Route, exampleFields []string) object {
	required, properties := []string{}, object{}
	for _, f := range r.Fields() {
		if f.Required {
			required = append(required, f.Name)
		}
		properties = append(properties, member{f.Name, requestField(f)})
	}
	schema := object{{"type", "object"}}
	if len(required) > 0 {
		schema = append(schema, member{"required", required})
	}
	example := object{}
	for _, name := range exampleFields {
		example = append(example, member{name, exampleOf(name)})
	}
	return object{
		{"required", true},
		{"content", jsonContent(append(schema, member{"properties", properties}), member{"example", example})},
	}
}

func requestField(f wire.Field) object {
	var schema object
	for _, m := range fieldSchemas[f.Name] {
		switch {
		case m.Name() == "type" && !f.Required:
			m[1] = []any{m[1], "null"}
		case m.Name() == "enum" && !f.Required:
			m[1] = append(slices.Clone(m[1].([]any)), nil)
		}
		schema = append(schema, m)
	}
	switch {
	case f.MaxItems > 0:
		one := object{{"type", "string"}, {"minLength", 1}, {"maxLength", f.Max}}
		schema = append(schema, member{"maxItems", f.MaxItems}, member{"items", one})
	case f.Max > 0 && f.Required:
		schema = append(schema, member{"minLength", 1}, member{"maxLength", f.Max})
	case f.Max > 0:
		schema = append(schema, member{"maxLength", f.Max})
	}
	return schema
}

// answers are the responses of a route: the successful one, then the errors by
// their status.
func (d *documentParts) answers(success object, errs []*wire.Error) object {
	byStatus := map[int][]*wire.Error{}
	statuses := []int{}
	for _, e := range errs {
		if !slices.Contains(statuses, e.Status) {
			statuses = append(statuses, e.Status)
		}
		byStatus[e.Status] = append(byStatus[e.Status], e)
	}
	slices.Sort(statuses)
	responses := object{{"200", success}}
	for _, status := range statuses {
		responses = append(responses, member{strconv.Itoa(status), d.failure(byStatus[status])})
	}
	return responses
}

func (d *documentParts) success(r *flows.Route) object {
	var schemas []any
	examples := object{}
	var descriptions []string
	for _, state := range r.To {
		answer := answerOf(r, state)
		if answer.name != passwordRecovered {
			d.schemas.AddOnce(answer.name, func() any { return answer.schema(state) })
		}
		d.examples.AddOnce(answer.name, func() any { return object{{"value", answer.example(state)}} })
		schemas = append(schemas, ref("schemas", answer.name))
		examples = append(examples, member{answer.name, ref("examples", answer.name)})
		descriptions = append(descriptions, answer.description)
	}
	schema := schemas[0]
	description := descriptions[0]
	if len(schemas) > 1 {
		schema = d.oneOf(r)
		description = "One of:\n\n- " + strings.Join(descriptions, "\n- ")
	}
	return object{{"description", description}, {"content", jsonContent(schema, member{"examples", examples})}}
}

// oneOf is the schema of a route with several answers, under a name, since
// clients are made of it: which one came is told by a field.
func (d *documentParts) oneOf(r *flows.Route) any {
	var schemas []any
	mapping := object{}
	field := "session_state"
	if slices.Contains(r.To, record.None) {
		field = "verification" // by which all answers of recover differ
	}
	for _, state := range r.To {
		answer := answerOf(r, state)
		if answer.name == passwordRecovered {
			d.schemas.AddOnce("PasswordSet", func() any { return passwordSetSchema() })
			return ref("schemas", "PasswordSet")
		}
		value := string(state)
		for _, f := range answer.fields {
			if f.name == field {
				value = string(f.value)
			}
		}
		schemas = append(schemas, ref("schemas", answer.name))
		mapping = append(mapping, member{value, ref("schemas", answer.name)[0][1]})
	}
	name := answersName(r)
	d.schemas.AddOnce(name, func() any {
		return object{{"oneOf", schemas}, {"discriminator", object{{"propertyName", field}, {"mapping", mapping}}}}
	})
	return ref("schemas", name)
}

// answersName is as in RecoveryRecoverAnswer.
func answersName(r *flows.Route) (name string) {
	for word := range strings.SplitSeq(strings.TrimPrefix(r.Path, "auth/"), "/") {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name + "Answer"
}

func answerOf(r *flows.Route, state record.State) answerText {
	if own, ok := routeAnswers[r.Path][state]; ok {
		return own
	}
	return stateAnswers[state]
}

func (a answerText) all(state record.State) []answerField {
	if state == record.None {
		return a.fields
	}
	return append([]answerField{{name: "session_token"}, {name: "session_state"}, {name: "expires_in"}}, a.fields...)
}

func (a answerText) schema(state record.State) object {
	required := []string{"status"}
	properties := object{{"status", object{{"type", "string"}, {"enum", []any{"success"}}}}}
	for _, f := range a.all(state) {
		schema := slices.Clone(fieldSchemas[f.name])
		switch {
		case f.name == "session_state":
			schema = append(schema, member{"enum", []any{state}})
		case f.value != "":
			schema = append(schema, member{"enum", []any{f.value}})
		}
		properties = append(properties, member{f.name, schema})
		if !f.optional {
			required = append(required, f.name)
		}
	}
	schema := object{
		{"type", "object"},
		{"description", a.description},
		{"required", required},
		{"properties", properties},
	}
	return schema
}

func (a answerText) example(state record.State) object {
	example := object{{"status", "success"}}
	for _, f := range a.all(state) {
		switch {
		case f.name == "session_state":
			example = append(example, member{f.name, state})
		case f.value != "":
			example = append(example, member{f.name, f.value})
		default:
			example = append(example, member{f.name, exampleOf(f.name)})
		}
	}
	return example
}

// failure is the response with errors of one status. One that has a single code
// is the same on every route.
func (d *documentParts) failure(errs []*wire.Error) object {
	if len(errs) > 1 {
		return d.failureOf(http.StatusText(errs[0].Status)+".", errs)
	}
	name := errorName(errs[0])
	d.responses.AddOnce(name, func() any { return d.failureOf(errs[0].Message, errs) })
	return ref("responses", name)
}

func (d *documentParts) failureOf(description string, errs []*wire.Error) object {
	codes, examples := []string{}, object{}
	challenge, challenges, retry := "", 0, false
	for _, e := range errs {
		codes = append(codes, "`"+e.Code+"`")
		d.examples.AddOnce(errorName(e), func() any { return object{{"value", errorExample(e)}} })
		examples = append(examples, member{errorName(e), ref("examples", errorName(e))})
		if c := challengeFor(e, 0); c != "" {
			challenge = c
			challenges++
		}
		retry = retry || slices.Contains(retryErrors, e)
	}
	if len(codes) > 1 {
		description += " " + strings.Join(codes, ", ")
	}
	headers := object{}
	if challenges > 0 {
		headers = append(headers, member{"WWW-Authenticate", object{
			{"description", "What is missing or wrong (RFC 6750)."},
			{"required", challenges == len(errs)},
			{"schema", object{{"type", "string"}}},
			{"example", challenge},
		}})
	}
	if retry {
		headers = append(headers, member{"Retry-After", object{
			{"description", "After how many seconds to try again."},
			{"required", true},
			{"schema", object{{"type", "integer"}, {"minimum", 1}}},
			{"example", 60},
		}})
	}
	response := object{{"description", description}}
	if len(headers) > 0 {
		response = append(response, member{"headers", headers})
	}
	return append(response, member{"content", jsonContent(ref("schemas", "Error"), member{"examples", examples})})
}

// errorSchema is one for all, so that clients handle errors in one place. Which
// codes may come is told with each response.
func errorSchema() object {
	var codes, reasons []any
	for i := range flows.Routes {
		for _, e := range errorsOf(&flows.Routes[i]) {
			if !slices.Contains(codes, any(e.Code)) {
				codes = append(codes, e.Code)
			}
			for _, reason := range wire.Reasons[e] {
				if !slices.Contains(reasons, any(reason)) {
					reasons = append(reasons, reason)
				}
			}
		}
	}
	return object{
		{"type", "object"},
		{"description", "What every refused request is answered with."},
		{"required", []string{"status", "error_code", "message"}},
		{"properties", object{
			{"status", object{{"type", "string"}, {"enum", []any{"error"}}}},
			{"error_code", object{{"type", "string"}, {"description", "What programs go by."}, {"enum", codes}}},
			{"message", object{{"type", "string"}, {"description", "One sentence for the developer of the client."}, {"examples", []any{wire.ErrPasswordInvalid.Message}}}},
			{"reason", object{{"type", "string"}, {"description", "The cause, where an error_code has several."}, {"enum", reasons}}},
			{"captcha_required", fieldSchemas["captcha_required"]},
			{"disclaimers_required", fieldSchemas["disclaimers_required"]},
		}},
	}
}

var (
	// retryErrors come with Retry-After.
	retryErrors = []*wire.Error{wire.ErrRestricted, wire.ErrUnavailable}
)

// errorName names an error in the document; a code can have several statuses.
func errorName(e *wire.Error) string { return fmt.Sprintf("%s.%d", e.Code, e.Status) }

func errorExample(e *wire.Error) object {
	example := object{{"status", "error"}, {"error_code", e.Code}, {"message", e.Message}}
	if e == wire.ErrQuality || e == wire.ErrRestricted { // which always have one
		example = append(example, member{"reason", wire.Reasons[e][0]})
	}
	if e == wire.ErrDisclaimerInvalid {
		example = append(example, member{"disclaimers_required", exampleOf("disclaimers_required")})
	}
	if e == wire.ErrCaptchaMissing || e == wire.ErrCaptchaInvalid {
		example = append(example, member{"captcha_required", true})
	}
	return example
}

// exampleOf is the example of a field.
func exampleOf(field string) any {
	for _, m := range fieldSchemas[field] {
		if m.Name() == "examples" {
			return m[1].([]any)[0]
		}
	}
	return nil
}
