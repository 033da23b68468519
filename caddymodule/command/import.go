package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

const (
	// A chunk is one request. What was under way when it broke is sent again.
	chunkLines = 2000
	chunkBytes = 4 << 20
	// importRetries is how often a chunk is tried again, each time a second
	// later: a reload or a failover is over by then.
	importRetries = 5
	// maxShownFailures are told one by one; the rest is counted.
	maxShownFailures = 1000
)

func (c *cli) importCommand() *cobra.Command {
	var update bool
	var format string
	cmd := c.command("import [<file>] [flags]", "Imports accounts", `Reads accounts from a file, or from standard input without one or with -, and
creates those that are not there. The file has one JSON object a line, or is CSV
whose first line names the columns; --format says which where the name of the
file does not.

The fields are those of 'account show' that can be written, and
  password             in plain; slow, since each is hashed
  password_hash        argon2id, argon2i, bcrypt, scrypt, pbkdf2, sha256crypt
                       or sha512crypt in PHC or crypt form; as Django, Spring,
                       Supabase or WordPress keep it; Firebase's
                       as $fbscrypt$v=1,n=<mem_cost>,r=<rounds>,p=1,
                       ss=<salt separator>,sk=<signer key>$<salt>$<hash>;
                       Keycloak's as its credential object. It is replaced by
                       argon2id at the first good login. Of another kind, or
                       if it takes longer than about a second to check, leave
                       it out: the user sets a password by recovery.
  control_answer       in plain, or control_answer_hash
  backup_code_hashes   as 'export' writes them
  totp_secret          of an authenticator app, in base32
  created_at           of a new account
In CSV true and false are also yes and no or 1 and 0, identities are written
1:subject with spaces between, other lists as JSON, and an empty cell is as if
the column was not there.

An account that is there already, by its mnemocode, is skipped: an import that
was interrupted can be run again. With --update it is changed instead, as by
'account set': what is in the file wins, a password that the user has set since
is lost, and changes of status, password, role, phone, email, second factor or
authenticator app end the account's sessions.

Each line that fails is told with its number and the field at fault, and the
others are imported; the exit status is then 1. The lines that were skipped are
told at the end, with the reason. A terminal is shown how far it is.`,
		cobra.MaximumNArgs(1), func(cmd *cobra.Command, args []string) error {
			name := "-"
			if len(args) == 1 {
				name = args[0]
			}
			return c.runImport(cmd, name, format, update)
		})
	cmd.Example = `  $ caddy mnemogate account import users.jsonl
  $ caddy mnemogate account import users.csv --update
  $ zcat dump.jsonl.gz | caddy mnemogate account import`
	cmd.ValidArgsFunction = nil // complete files
	cmd.Flags().BoolVar(&update, "update", false, "Change accounts that are there")
	cmd.Flags().StringVar(&format, "format", "", "jsonl or csv; default: by the name of the file, else jsonl")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"jsonl", "csv"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// A recordReader yields accounts as JSON, each with the number of its line in
// the file. An error with a line is that line's; io.EOF is the end.
type recordReader interface {
	next() (line int, record []byte, err error)
}

func (c *cli) runImport(cmd *cobra.Command, name, format string, update bool) error {
	in, size := cmd.InOrStdin(), int64(0)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		in = f
	}
	if format == "" && strings.EqualFold(filepath.Ext(name), ".csv") {
		format = "csv"
	}
	counted := &countingReader{r: in}
	var records recordReader
	switch format {
	case "", "jsonl":
		records = newJSONLines(counted)
	case "csv":
		var err error
		if records, err = newCSVRecords(counted); err != nil {
			return err
		}
	default:
		return errors.New("--format is jsonl or csv")
	}
	company, err := c.company(cmd.Context())
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	run := &importRun{
		cli: c, path: company + "/import?skipped=true&update=" + strconv.FormatBool(update),
		out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), progress: newProgress(cmd.ErrOrStderr(), counted, size),
	}
	return run.run(ctx, records)
}

// An importRun sends the records of a file.
type importRun struct {
	*cli
	path      string
	out, errs io.Writer
	progress  *progress
	total     api.Counts
	skipped   []*skippedLines // for each reason
}

// A chunk is some records, and the line of each.
type chunk struct {
	lines []int
	body  bytes.Buffer
}

func (r *importRun) run(ctx context.Context, records recordReader) error {
	var end error
	for end == nil {
		var next chunk
		end = r.fill(&next, records)
		if len(next.lines) == 0 {
			continue
		}
		if err := r.send(ctx, &next); err != nil {
			r.progress.clear()
			r.report()
			ended, ok := errors.AsType[*cliError](err)
			if !ok {
				ended = &cliError{exit: exitFailed, message: err.Error()}
			}
			return &cliError{exit: ended.exit, field: ended.field, message: fmt.Sprintf(
				"%s; not all was imported from line %d on: run the same command again, what is there is skipped", ended.message, next.lines[0])}
		}
		r.progress.show(r.total)
	}
	r.progress.clear()
	r.report()
	if end != io.EOF {
		return fmt.Errorf("reading the file: %w", end)
	}
	if r.total.Failed > 0 {
		return &cliError{exit: exitFailed} // all is said
	}
	return nil
}

// fill reads the next chunk. A record that can't be read has failed.
func (r *importRun) fill(next *chunk, records recordReader) error {
	for len(next.lines) < chunkLines && next.body.Len() < chunkBytes {
		line, record, err := records.next()
		switch {
		case err != nil && line == 0:
			return err
		case err != nil:
			r.fail(api.Failure{Line: line, Error: err.Error()})
		default:
			next.lines = append(next.lines, line)
			next.body.Write(record)
			next.body.WriteByte('\n')
		}
	}
	return nil
}

// send imports a chunk. If it breaks it is sent again, and what was imported
// before counts as skipped.
func (r *importRun) send(ctx context.Context, next *chunk) error {
	for try := 0; ; try++ {
		counts, failures, err := r.sendOnce(ctx, next)
		if err == nil {
			slices.SortFunc(failures, func(a, b api.Failure) int { return a.Line - b.Line })
			for _, f := range failures {
				f.Line = next.lines[f.Line-1]
				if f.Skipped != "" {
					r.skip(f)
				} else {
					r.fail(f)
				}
			}
			r.total.Created += counts.Created
			r.total.Updated += counts.Updated
			r.total.Skipped += counts.Skipped
			return nil
		}
		refused, ok := errors.AsType[*cliError](err)
		if !ok || refused.exit != exitUnreachable || try == importRetries {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return errors.New("interrupted")
		}
	}
}

func (r *importRun) sendOnce(ctx context.Context, next *chunk) (counts api.Counts, failures []api.Failure, err error) {
	response, err := r.open(ctx, http.MethodPost, r.path, bytes.NewReader(next.body.Bytes()))
	if err != nil {
		return counts, nil, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, api.MaxAccount)
	complete := false
	for lines.Scan() {
		var f api.Failure
		if bytes.HasPrefix(lines.Bytes(), []byte(`{"line"`)) {
			if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
				return counts, nil, err
			}
			failures = append(failures, f)
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &counts); err != nil {
			return counts, nil, err
		}
		complete = true
	}
	if ctx.Err() != nil {
		return counts, nil, errors.New("interrupted")
	}
	if !complete {
		return counts, nil, &cliError{exit: exitUnreachable, message: "the server's answer broke off"}
	}
	if counts.Error != "" {
		return counts, nil, &cliError{exit: exitUnreachable, message: counts.Error}
	}
	return counts, failures, nil
}

func (r *importRun) fail(f api.Failure) {
	r.total.Failed++
	r.progress.clear()
	switch {
	case r.total.Failed > maxShownFailures && !r.json:
	case r.json:
		_ = api.WriteLine(r.out, f)
	case f.Field != "" && !strings.HasPrefix(f.Error, f.Field):
		fmt.Fprintf(r.errs, "line %d: %s: %s\n", f.Line, f.Field, f.Error)
	default:
		fmt.Fprintf(r.errs, "line %d: %s\n", f.Line, f.Error)
	}
}

// skippedLines are those that were skipped for one reason.
type skippedLines struct {
	why    string
	ranges [][2]int // the first and the last line of each
	more   int      // beside these
}

// String is as in "lines 2, 5-9: why".
func (s *skippedLines) String() string {
	var b strings.Builder
	for i, lines := range s.ranges {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(lines[0]))
		if lines[1] > lines[0] {
			fmt.Fprintf(&b, "-%d", lines[1])
		}
	}
	if s.more > 0 {
		fmt.Fprintf(&b, " and %s more", humanize.Comma(int64(s.more)))
	}
	return fmt.Sprintf("lines %s: %s", &b, s.why)
}

// skip notes a line that was skipped. They come in their order.
func (r *importRun) skip(f api.Failure) {
	if r.json {
		_ = api.WriteLine(r.out, f)
		return
	}
	i := slices.IndexFunc(r.skipped, func(s *skippedLines) bool { return s.why == f.Skipped })
	if i < 0 {
		i = len(r.skipped)
		r.skipped = append(r.skipped, &skippedLines{why: f.Skipped})
	}
	s := r.skipped[i]
	switch last := len(s.ranges) - 1; {
	case last >= 0 && s.more == 0 && s.ranges[last][1] == f.Line-1:
		s.ranges[last][1] = f.Line
	case len(s.ranges) < maxShownFailures:
		s.ranges = append(s.ranges, [2]int{f.Line, f.Line})
	default:
		s.more++
	}
}

// report tells the counts at the end.
func (r *importRun) report() {
	if r.json {
		_ = api.WriteLine(r.out, r.total)
		return
	}
	if more := r.total.Failed - maxShownFailures; more > 0 {
		fmt.Fprintf(r.errs, "… and %s more\n", humanize.Comma(int64(more)))
	}
	for _, s := range r.skipped {
		fmt.Fprintf(r.errs, "skipped %s\n", s)
	}
	fmt.Fprintf(r.out, "%s created, %s updated, %s skipped, %s failed in %s\n",
		humanize.Comma(int64(r.total.Created)), humanize.Comma(int64(r.total.Updated)),
		humanize.Comma(int64(r.total.Skipped)), humanize.Comma(int64(r.total.Failed)), time.Since(r.progress.began).Round(100*time.Millisecond))
}

// Progress

// A progress shows on a terminal how far an import is, in one line.
type progress struct {
	w     io.Writer // nil if it is no terminal
	read  *countingReader
	size  int64 // 0: not known
	began time.Time
	shown bool
}

func newProgress(w io.Writer, read *countingReader, size int64) *progress {
	p := &progress{read: read, size: size, began: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w = w
	}
	return p
}

func (p *progress) show(done api.Counts) {
	if p.w == nil {
		return
	}
	p.clear()
	fmt.Fprint(p.w, p.line(done, time.Since(p.began)))
	p.shown = true
}

func (p *progress) line(done api.Counts, took time.Duration) string {
	n := done.Created + done.Updated + done.Skipped + done.Failed
	line := fmt.Sprintf("%s accounts, %s a second", humanize.Comma(int64(n)), humanize.Comma(int64(float64(n)/took.Seconds())))
	if done.Failed > 0 {
		line += fmt.Sprintf(", %s failed", humanize.Comma(int64(done.Failed)))
	}
	if p.size > 0 && p.read.n > 0 {
		part := min(1, float64(p.read.n)/float64(p.size))
		left := time.Duration(float64(took) * (1 - part) / part)
		line += fmt.Sprintf(", %d %%, %s left", int(part*100), left.Round(time.Second))
	}
	return line
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// A countingReader counts what is read.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// Formats

// jsonLines yields the lines of a file that are not empty.
type jsonLines struct {
	r    *bufio.Reader
	line int
}

func newJSONLines(r io.Reader) *jsonLines {
	return &jsonLines{r: bufio.NewReaderSize(r, api.MaxAccount+1)}
}

func (j *jsonLines) next() (int, []byte, error) {
	for {
		record, err := api.ReadLine(j.r)
		if err != nil && err != io.EOF && err != api.ErrLongLine {
			return 0, nil, err
		}
		j.line++
		if err == api.ErrLongLine {
			return j.line, nil, fmt.Errorf("the line has more than %d bytes", api.MaxAccount)
		}
		if j.line == 1 {
			record = bytes.TrimPrefix(record, []byte("\ufeff"))
		}
		if record = bytes.TrimSpace(record); len(record) > 0 {
			return j.line, record, nil
		}
		if err == io.EOF {
			return 0, nil, io.EOF
		}
	}
}

// csvRecords yields the records of a file whose first names the columns.
type csvRecords struct {
	r       *csv.Reader
	columns []string
}

func newCSVRecords(r io.Reader) (*csvRecords, error) {
	buffered := bufio.NewReader(r)
	if mark, err := buffered.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = buffered.Discard(3)
	}
	begin, _ := buffered.Peek(buffered.Size()) // what is wrong is told by reading it
	first, _, _ := strings.Cut(string(begin), "\n")
	if !strings.Contains(first, ",") && strings.Contains(first, ";") {
		return nil, errors.New("the columns are separated by semicolons; save the file with commas between them: a spreadsheet asks for the field separator when it exports CSV")
	}
	reader := csv.NewReader(buffered)
	reader.ReuseRecord = true
	columns, err := reader.Read()
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
			return nil, fmt.Errorf("the column %s is there twice", name)
		}
		c.columns = append(c.columns, name)
	}
	return c, nil
}

func (c *csvRecords) next() (int, []byte, error) {
	record, err := c.r.Read()
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		if errors.Is(err, csv.ErrFieldCount) {
			return wrong.StartLine, nil, fmt.Errorf("it has %d cells, the first line %d", len(record), len(c.columns))
		}
		if wrong.Line > wrong.StartLine { // to the next quote, or the end of the file
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
		if fields[c.columns[i]], err = csvValue(c.columns[i], cell); err != nil {
			return line, nil, fmt.Errorf("%s: %w", c.columns[i], err)
		}
	}
	encoded, err := json.Marshal(fields)
	return line, encoded, err
}

// csvValue makes of a cell what the field is in JSON.
func csvValue(column, cell string) (any, error) {
	switch column {
	case "second_factor", "must_set_password":
		switch strings.ToLower(strings.TrimSpace(cell)) {
		case "true", "yes", "1":
			return true, nil
		case "false", "no", "0":
			return false, nil
		}
		return nil, errors.New("it must be true or false")
	case "oauth_identities":
		if !strings.HasPrefix(strings.TrimSpace(cell), "[") {
			return parseIdentities(strings.Fields(cell))
		}
		fallthrough
	case "disclaimers_accepted", "backup_code_hashes":
		if !json.Valid([]byte(cell)) {
			return nil, errors.New("it must be a list in JSON")
		}
		return json.RawMessage(cell), nil
	default:
		return cell, nil
	}
}

func (c *cli) exportCommand() *cobra.Command {
	var file string
	var secrets bool
	cmd := c.command("export [--output <file>] [--with-secrets]", "Exports all accounts", `Writes one JSON object a line, as 'import' takes it: to move to another store,
or to keep a copy. Passwords, control answers and backup codes are in it as
hashes, so nobody has to set a new password after a move; keep the file as you
keep the store. Sessions and the counts of wrong attempts are not in it.

The secrets of authenticator apps can't be kept as hashes: they are in it, in
plain, only with --with-secrets. Without it their users have to set up their
apps again.`,
		cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
			company, err := c.company(cmd.Context())
			if err != nil {
				return err
			}
			query := ""
			if secrets {
				query = "?secrets=true"
			}
			return untilInterrupted(cmd.Context(), func(ctx context.Context) error {
				response, err := c.open(ctx, http.MethodGet, company+"/export"+query, nil)
				if err != nil {
					return err
				}
				defer response.Body.Close()
				if file != "" {
					return writeExport(file, response.Body)
				}
				_, err = copyAnswer(cmd.OutOrStdout(), response.Body, exportBroken)
				return err
			})
		})
	cmd.Flags().StringVarP(&file, "output", "o", "", "Write to this new file, which only you can read")
	cmd.Flags().BoolVar(&secrets, "with-secrets", false, "Export the secrets of authenticator apps, too")
	_ = cmd.MarkFlagFilename("output")
	return cmd
}

// writeExport writes a new file. One that is not whole could be taken for one that is.
func writeExport(file string, export io.Reader) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // for its owner only
	if err != nil {
		return err
	}
	if _, err = fill(f, export, exportBroken); err != nil {
		os.Remove(file)
	}
	return err
}

const exportBroken = "the export is not complete"
