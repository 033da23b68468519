//go:build ignore

// Signs up two users, one by phone and one by email, as docs/backends.md describes. The
// parts after "log in" belong to the app, and are here so that you can try it:
//
//	ACCOUNTS_API=… ACCOUNTS_KEY=… AUTH_API=… API_KEY=… go run signup.go
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

type object = map[string]any

// post sends an object and returns the answer. If none comes, it sends the same again: with
// the same key, nothing is done twice within a minute.
func post(url, key string, header http.Header, body object) object {
	data, _ := json.Marshal(body)
	status, text, err := send(url, key, header, data)
	if err != nil {
		time.Sleep(time.Second)
		status, text, err = send(url, key, header, data)
	}
	if err != nil {
		log.Fatal(err)
	}
	answer := object{}
	if err := json.Unmarshal(text, &answer); err != nil || status >= 300 {
		log.Fatalf("%s: %d %v", url, status, answer)
	}
	return answer
}

var client = http.Client{Timeout: 40 * time.Second} // answers can take 30 s

func send(url, key string, header http.Header, data []byte) (status int, text []byte, err error) {
	r, err := http.NewRequest("POST", url, bytes.NewReader(data))
	if err != nil {
		log.Fatal(err)
	}
	r.Header = header.Clone()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	response, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	return response.StatusCode, text, err
}

var lines = bufio.NewReader(os.Stdin)

func ask(what string) string {
	fmt.Println(what)
	answer, _ := lines.ReadString('\n')
	return strings.TrimSpace(answer)
}

var (
	company = os.Getenv("ACCOUNTS_API") + "/acme"
	backend = http.Header{"Authorization": {"Bearer " + os.Getenv("ACCOUNTS_KEY")}}
)

// proofOf sends a code to a phone or email, and exchanges the code for a proof that the user
// has read it there.
func proofOf(signUpID string, contact object) any {
	sent := post(company+"/contacts", signUpID, backend, contact)
	code := ask("contact code")
	// Its key has the code, because the answer to a wrong one is kept. A key has no spaces.
	proven := post(company+"/contacts/confirm", signUpID+"-"+url.QueryEscape(code), backend,
		object{"contact_token": sent["contact_token"], "code": code})
	return proven["proof"]
}

// signUp creates an account with a phone or an email, which is the backend's part. The
// address is the user's, because mnemogate limits the messages for each. A backend that
// crashed calls it again with the same signUpID, which it had stored before. It takes a new
// one if the code or the proof has expired, or if the user wants another code.
func signUp(signUpID, mnemocode, phone, email, address string) {
	if phone != "" {
		proof := proofOf(signUpID, object{"phone": phone, "address": address})
		post(company+"/accounts", signUpID, backend,
			object{"profile_mnemocode": mnemocode, "primary_phone": phone, "phone_proof": proof, "must_set_password": true})
		return
	}
	proof := proofOf(signUpID, object{"email": email, "address": address})
	post(company+"/accounts", signUpID, backend,
		object{"profile_mnemocode": mnemocode, "primary_email": email, "email_proof": proof})
	post(company+"/accounts/"+url.PathEscape(mnemocode)+"/welcome", signUpID, backend, nil)
}

// step calls a route of the auth API with the newest token.
func step(route, token string, body object) object {
	header := http.Header{"X-Api-Key": {os.Getenv("API_KEY")}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return post(os.Getenv("AUTH_API")+"/acme/v2/auth/"+route, rand.Text(), header, body)
}

func token(answer object) string { return answer["session_token"].(string) }

// accepted returns the codes of the disclaimers that the app shows and the user accepts.
func accepted(login object) []any {
	codes := []any{}
	for _, disclaimer := range login["disclaimers_required"].([]any) {
		codes = append(codes, disclaimer.(object)["code"])
	}
	return codes
}

// id begins the ids of the sign-ups. The test of this program kills it, and starts it again
// with the same id.
var id = cmp.Or(os.Getenv("SIGN_UP_ID"), rand.Text())

func main() {
	const password = "a fine new secret"

	signUp(id+"-erin", "erin-0005", "+37060000005", "", "192.0.2.5")
	signUp(id+"-frank", "frank-0006", "", "frank@example.com", "192.0.2.6")

	login := step("login", "", object{"login_id": "+37060000005"}) // log in
	checked := step("checkotp", token(login), object{"otp": ask("code"), "accept_disclaimers": accepted(login)})
	set := step("setpassword", token(checked), object{"new_password": password})
	fmt.Println(set["session_state"], set["profile_mnemocode"])

	link := step("recovery/checklink", "", object{"token": ask("link")}) // log in
	step("setpassword", token(link), object{"new_password": password})
	login = step("login", "", object{"login_id": "frank@example.com"})
	in := step("checkpassword", token(login), object{"password": password, "accept_disclaimers": accepted(login)})
	fmt.Println(in["session_state"], in["profile_mnemocode"])
}
