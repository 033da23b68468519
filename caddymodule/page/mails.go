package page

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
)

// Mails says what the mails of a company look like, in the words of its configuration.
type Mails struct {
	Texts   string `json:"texts"`
	Color   string `json:"mail_color"`
	Support string `json:"support"`
}

// Or returns m with the inherited settings where it has none.
func (m Mails) Or(inherited Mails) Mails {
	return Mails{cmp.Or(m.Texts, inherited.Texts), cmp.Or(m.Color, inherited.Color), cmp.Or(m.Support, inherited.Support)}
}

// mailTypes are the types of messages that are mailed.
var mailTypes = append([]string{message.RecoveryLink, message.WelcomeLink, message.ContactCode}, message.Notices...)

// preview adds the mails to the preview, at /mails/{scheme}/{type}?lang={language}, and at
// /mails the list of their types. name is what people call the company.
func (m Mails) preview(mux *http.ServeMux, name string) error {
	texts := message.DefaultTexts()
	if m.Texts != "" {
		var err error
		if texts, err = message.LoadTexts(m.Texts); err != nil {
			return fmt.Errorf("texts: %w", err)
		}
	}
	mux.HandleFunc("GET /mails", jsonOf(func(*http.Request) any { return mailTypes }))
	for scheme, replacer := range schemes {
		mux.HandleFunc("GET /mails/"+scheme+"/{type}", func(w http.ResponseWriter, r *http.Request) {
			mail := m.sample(r.PathValue("type"), name)
			if err := texts.Render(&mail, time.Now(), r.URL.Query().Get("lang")); err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
				return
			}
			edit(w, r, replacer, func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:")
				_, _ = w.Write([]byte(mail.HTML)) // the browser may be gone
			})
		})
	}
	return nil
}

func (m Mails) sample(kind, company string) message.Message {
	mail := message.Message{
		Type: kind, To: "alice@example.com", Name: company, Color: m.Color, Support: m.Support,
		Notice: message.Notice{Address: "203.0.113.7", UserAgent: "Firefox/140.0 (Windows)"},
	}
	if m.Support == "off" {
		mail.Support = ""
	}
	switch {
	case message.IsNotice(kind):
		mail.Time = time.Now()
	case kind == message.ContactCode:
		mail.Code, mail.Expires = "31415926", time.Now().Add(5*time.Minute)
	default:
		mail.Link, mail.Expires = "https://app.example.com/acme/login#mgl_"+strings.Repeat("5mBqXnV0sJ", 4), time.Now().Add(30*time.Minute)
	}
	return mail
}
