package command

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

// progress describes the progress of an import after the duration took. The file is nil
// for standard input.
func progress(c api.Counts, took time.Duration, file *os.File) string {
	n := c.Created + c.Updated + c.Skipped + c.Failed
	line := fmt.Sprintf("%s accounts, %s a second", comma(n), comma(int(float64(n)/took.Seconds())))
	if c.Failed > 0 {
		line += fmt.Sprintf(", %s failed", comma(c.Failed))
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		if read, err := file.Seek(0, io.SeekCurrent); err == nil && read > 0 {
			part := min(1, float64(read)/float64(info.Size()))
			left := time.Duration(float64(took) * (1 - part) / part)
			line += fmt.Sprintf(", %d %%, %s left", int(part*100), left.Round(time.Second))
		}
	}
	return line
}

// comma formats a number as in "1,500".
func comma(n int) string { return humanize.Comma(int64(n)) }

// ranges formats sorted numbers as in "2, 5-9", and at most so many ranges.
func ranges(numbers []int, atMost int) string {
	var b strings.Builder
	for shown := 0; len(numbers) > 0; shown++ {
		if shown == atMost {
			fmt.Fprintf(&b, " and %s more", comma(len(numbers)))
			break
		}
		n := 1
		for n < len(numbers) && numbers[n] == numbers[n-1]+1 {
			n++
		}
		if shown > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(numbers[0]))
		if n > 1 {
			fmt.Fprintf(&b, "-%d", numbers[n-1])
		}
		numbers = numbers[n:]
	}
	return b.String()
}
