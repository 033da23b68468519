package command

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/record"
)

// importRecords are the accounts in a file. Next returns each as JSON, with its line number
// in the file. An error with a line number concerns only that line. io.EOF is the end.
type importRecords interface {
	Next() (line int, record []byte, err error)
}

// jsonRecords are the lines of a file that has one JSON object a line. A file that begins
// otherwise has none.
type jsonRecords struct{ *api.Lines }

// Next implements importRecords.
func (j jsonRecords) Next() (int, []byte, error) {
	record, err := j.Lines.Next()
	if err != nil && err != api.ErrLongLine {
		return 0, nil, err
	}
	if j.N == 1 && namesColumns(record) {
		return 0, nil, errors.New("it is CSV; add --format csv")
	}
	return j.N, record, err
}

// namesColumns reports whether a line is the first of a CSV file.
func namesColumns(line []byte) bool {
	names := strings.FieldsFunc(string(line), func(c rune) bool { return strings.ContainsRune(",;\t\" ", c) })
	return len(names) > 0 && slices.Contains(api.Fields, names[0])
}

// csvRecords are the records of a CSV file. The first record names the columns.
type csvRecords struct {
	r       *csv.Reader
	columns []string
}

func newCSVRecords(r io.Reader) (*csvRecords, error) {
	buffered := bufio.NewReader(r)
	begin, _ := buffered.Peek(buffered.Size()) // an error is reported by the read below
	first, _, _ := strings.Cut(string(begin), "\n")
	if !strings.Contains(first, ",") && strings.Contains(first, ";") {
		return nil, errors.New("the columns are separated by semicolons; save the file with commas between them: a spreadsheet asks for the field separator when it exports CSV")
	}
	reader := csv.NewReader(buffered)
	reader.ReuseRecord = true
	columns, err := reader.Read()
	if err == io.EOF {
		return nil, errEmpty
	}
	if err != nil {
		return nil, fmt.Errorf("reading the names of the columns: %w", err)
	}
	c := &csvRecords{r: reader}
	for _, name := range columns {
		name = strings.TrimSpace(name)
		if !slices.Contains(api.Fields, name) {
			return nil, fmt.Errorf("there is no such field as the column %q; they are %s", name, strings.Join(api.Fields, ", "))
		}
		if slices.Contains(c.columns, name) {
			return nil, fmt.Errorf("the column %s appears twice", name)
		}
		c.columns = append(c.columns, name)
	}
	return c, nil
}

// Next implements importRecords.
func (c *csvRecords) Next() (int, []byte, error) {
	record, err := c.r.Read()
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		if errors.Is(err, csv.ErrFieldCount) {
			return wrong.StartLine, nil, fmt.Errorf("it has %d cells, the first line %d", len(record), len(c.columns))
		}
		if wrong.Line > wrong.StartLine { // the quote was open up to this line
			return wrong.StartLine, nil, fmt.Errorf("a quote is missing or one too many, and all lines up to %d were taken for a part of this one: none of them is imported", wrong.Line)
		}
		return wrong.StartLine, nil, wrong.Err
	}
	if err != nil {
		return 0, nil, err
	}
	line, _ := c.r.FieldPos(0)
	fields := map[string]any{}
	for i, cell := range record {
		if cell == "" {
			continue
		}
		if !utf8.ValidString(cell) { // JSON would have replacement characters for its letters
			return line, nil, fmt.Errorf("%s: it is not UTF-8; save the file as UTF-8", c.columns[i])
		}
		if fields[c.columns[i]], err = csvValue(c.columns[i], cell); err != nil {
			return line, nil, fmt.Errorf("%s: %w", c.columns[i], err)
		}
	}
	encoded, err := json.Marshal(fields)
	return line, encoded, err
}

// rounded matches a long number as spreadsheets save it unless its cell is formatted as text or
// whole numbers.
var rounded = regexp.MustCompile(`^[0-9]([.,][0-9]+)?E\+[0-9]+$`)

// csvValue converts a cell to the field's JSON value.
func csvValue(column, cell string) (any, error) {
	if record.FieldNamed(column).Flag != nil {
		switch strings.ToLower(strings.TrimSpace(cell)) {
		case "true", "yes", "1":
			return true, nil
		case "false", "no", "0":
			return false, nil
		}
		return nil, errors.New("it must be true or false")
	}
	switch column {
	case "profile_mnemocode", "login_name", "primary_phone":
		if rounded.MatchString(cell) {
			return nil, errors.New("a spreadsheet has rounded this number; format the column as whole numbers, and save the file again")
		}
		return cell, nil
	case "oauth_identities":
		if !strings.HasPrefix(strings.TrimSpace(cell), "[") {
			return parseIdentities(strings.Fields(cell))
		}
		fallthrough
	case "disclaimers_accepted", "backup_code_hashes", "passkeys":
		if !json.Valid([]byte(cell)) {
			return nil, errors.New("it must be a list in JSON")
		}
		return json.RawMessage(cell), nil
	default:
		return cell, nil
	}
}

// parseIdentities parses identities of the form provider:subject. It ignores empty ones.
func parseIdentities(given []string) ([]api.Identity, error) {
	identities := []api.Identity{}
	for _, s := range given {
		if s == "" {
			continue
		}
		provider, subject, ok := strings.Cut(s, ":")
		n, err := strconv.Atoi(provider)
		if !ok || err != nil {
			return nil, fmt.Errorf("an identity is written provider:subject, as in 1:10769150350006150715113082367, not %.30q", s)
		}
		identities = append(identities, api.Identity{Provider: n, Subject: subject})
	}
	return identities, nil
}
