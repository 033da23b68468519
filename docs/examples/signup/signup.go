//go:build ignore

// Signs up two users, one by phone and one by email, as docs/backends.md describes. The
// parts after "log in" belong to the app, and are here so that you can try it:
//
//	ACCOUNTS_API=… ACCOUNTS_KEY=… AUTH_API=… API_KEY=… go run signup.go
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
)

type object = map[string]any

// post sends an object and returns the answer.
func post(url string, header http.Header, body object) object {
	data, _ := json.Marshal(body)
	r, err := http.NewRequest("POST", url, bytes.NewReader(data))
	if err != nil {
		log.Fatal(err)
	}
	r.Header = header.Clone()
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	answer := object{}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode >= 300 {
		log.Fatalf("%s: %s %v", url, response.Status, answer)
	}
	return answer
}

func ask(what string) (answer string) {
	fmt.Println(what)
	fmt.Scanln(&answer)
	return answer
}

// signUp creates an account with a phone or an email, which is the backend's part.
func signUp(mnemocode, phone, email string) {
	accounts := os.Getenv("ACCOUNTS_API") + "/acme/accounts"
	key := http.Header{"Authorization": {"Bearer " + os.Getenv("ACCOUNTS_KEY")}}
	if phone != "" {
		post(accounts, key, object{"profile_mnemocode": mnemocode, "primary_phone": phone, "must_set_password": true})
		return
	}
	post(accounts, key, object{"profile_mnemocode": mnemocode, "primary_email": email})
	post(accounts+"/"+mnemocode+"/welcome", key, nil)
}

// step calls a route of the auth API with the newest token.
func step(route, token string, body object) object {
	header := http.Header{"X-Api-Key": {os.Getenv("API_KEY")}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return post(os.Getenv("AUTH_API")+"/acme/v2/auth/"+route, header, body)
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

func main() {
	const password = "a fine new secret"

	signUp("erin-0005", "+37060000005", "")
	login := step("login", "", object{"login_id": "+37060000005"}) // log in
	checked := step("checkotp", token(login), object{"otp": ask("code"), "accept_disclaimers": accepted(login)})
	set := step("setpassword", token(checked), object{"new_password": password})
	fmt.Println(set["session_state"], set["profile_mnemocode"])

	signUp("frank-0006", "", "frank@example.com")
	link := step("recovery/checklink", "", object{"token": ask("link")}) // log in
	step("setpassword", token(link), object{"new_password": password})
	login = step("login", "", object{"login_id": "frank@example.com"})
	in := step("checkpassword", token(login), object{"password": password, "accept_disclaimers": accepted(login)})
	fmt.Println(in["session_state"], in["profile_mnemocode"])
}
