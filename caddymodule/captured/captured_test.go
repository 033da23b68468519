package captured

import (
	"testing"

	"github.com/mnemogate/mnemogate/flows/message"
)

// The numbers of a company's messages do not tell what others have captured.
func TestNumbersAreOfOneCompany(t *testing.T) {
	for _, company := range []string{"a", "b", "b", "a"} {
		Keep(message.Message{Company: company})
	}
	if of := List(t.Context(), "a", "", 0); len(of) != 2 || of[1].Number != of[0].Number+1 {
		t.Errorf("got %+v", of)
	}
}
