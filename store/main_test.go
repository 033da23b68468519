package store

import (
	"os"
	"testing"

	"github.com/mnemogate/mnemogate/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Run(m)) }
