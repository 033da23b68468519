package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

const (
	// A chunk is sent in one request. If the request fails, the whole chunk is sent
	// again.
	chunkLines = 2000
	chunkBytes = 4 << 20
	// importRetries is how often a chunk is sent again, one second apart. A reload
	// or a failover is over by then.
	importRetries = 5
	// maxShown limits the failures that are printed one by one, and the ranges of
	// lines that were skipped for one reason.
	maxShown = 1000
)

func (c *cli) importCommand() *cobra.Command {
	var update bool
	var format string
	cmd := c.command("import [<file>] [flags]", "Imports accounts", `Reads accounts from a file, or from standard input if you name none or -, and
creates those that do not exist. The file has one JSON object per line, or is
CSV whose first line names the columns. Use --format if the file's name does not
say which.

The fields are those that you can set with 'account add', and
  password             in plain; slow, since each is hashed
  password_hash        argon2id, argon2i, bcrypt, scrypt, pbkdf2 (SHA-1, 256,
                       512), sha256crypt, sha512crypt or md5crypt (also
                       $apr1$) in PHC or crypt form; as ASP.NET Identity 3,
                       Django, Drupal, LDAP ({SSHA}, {SSHA256}, {SSHA512}; of
                       {CRYPT}, what is behind it), phpBB, Spring (pbkdf2 only
                       with Spring's own parameters), Supabase, Werkzeug or
                       WordPress keep it; Firebase's as
                       $fbscrypt$v=1,n=<mem_cost>,r=<rounds>,p=1,
                       ss=<salt separator>,sk=<signer key>$<salt>$<hash>;
                       Keycloak's as its credential object. It is replaced by
                       argon2id at the first successful login. Leave out other
                       kinds, and hashes that take more than about a second
                       of one CPU (bcrypt above cost 14) or 256 MiB, unless
                       they are argon2id up to the company's own parameters:
                       their users set a password by recovery.
  control_answer       in plain, or control_answer_hash
  backup_code_hashes   as 'export' writes them; together as cheap as one
                       password_hash
  user_handle, passkeys
                       as 'export' writes them
  totp_secret          of an authenticator app, in base32; null removes it
  created_at           of a new account
In CSV, write true and false, yes and no, or 1 and 0; identities as 1:subject,
separated by spaces; and other lists as JSON. An empty cell leaves the field
out.

The import skips accounts whose mnemocode exists, so you can repeat it after an
interruption. With --update, it changes them like 'account set': the fields in
the file replace those of the account, also a password that the user has set
since. A change of status, password, role, phone, email, second factor or
authenticator app revokes the account's sessions.

For each line that fails, the import prints its number and the field, and
continues; the exit status is then 1. At the end, it prints the skipped lines,
with the reason, and the accounts that nobody can use or whose hash is weak. A
terminal shows the progress.`,
		cobra.MaximumNArgs(1), func(args []string) error {
			if len(args) == 0 {
				args = []string{"-"}
			}
			return c.runImport(args[0], format, update)
		})
	cmd.Example = `  $ caddy mnemogate account import users.jsonl
  $ caddy mnemogate account import users.csv --update
  $ zcat dump.jsonl.gz | caddy mnemogate account import`
	cmd.ValidArgsFunction = nil // complete files
	cmd.Flags().BoolVar(&update, "update", false, "Change existing accounts")
	cmd.Flags().StringVar(&format, "format", "", "jsonl or csv; default: by the name of the file, else jsonl")
	complete(cmd, "format", "jsonl", "csv")
	return cmd
}

func (c *cli) runImport(name, format string, update bool) error {
	r := &importRun{cli: c, update: update, began: time.Now(), status: io.Discard, skipped: map[string][]int{}, warned: map[string][]int{}}
	if isTerminal(c.cmd.ErrOrStderr()) {
		r.status = c.cmd.ErrOrStderr()
	}
	var in io.Reader = c.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in, r.file = decoded(f), f
	}
	defer c.interruptible()()
	in = untilDone{c.cmd.Context(), in}
	if format == "" && strings.EqualFold(filepath.Ext(name), ".csv") {
		format = "csv"
	}
	var records importRecords
	switch format {
	case "", "jsonl":
		records = jsonRecords{Lines: api.NewLines(in)}
	case "csv":
		var err error
		if records, err = newCSVRecords(in); err != nil {
			return err
		}
	default:
		return fmt.Errorf("--format: %q is unknown; write jsonl or csv", format)
	}
	company, err := c.company()
	if err != nil {
		return err
	}
	r.path = company + "/import?verbose=true&update=" + strconv.FormatBool(update)
	return r.run(records)
}

// An untilDone is read until its context ends, even if nothing comes from a terminal or pipe.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (u untilDone) Read(b []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	got, done := make([]byte, len(b)), make(chan result, 1)
	go func() {
		n, err := u.Reader.Read(got)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return copy(b, got[:r.n]), r.err
	case <-u.ctx.Done():
		return 0, errors.New("interrupted")
	}
}

// An importRun imports the records of a file.
type importRun struct {
	*cli
	path    string
	update  bool
	file    *os.File // nil for standard input
	began   time.Time
	status  io.Writer // the terminal
	total   api.Counts
	skipped map[string][]int // the skipped lines, by reason
	warned  map[string][]int // lines with a warning
}

// A chunk holds some records and their line numbers.
type chunk struct {
	lines []int
	body  bytes.Buffer
}

func (r *importRun) run(records importRecords) error {
	var end error
	empty := true
	for end == nil {
		var next chunk
		end = r.fill(&next, records)
		empty = empty && len(next.lines) == 0 && r.total.Failed == 0
		if len(next.lines) == 0 {
			continue
		}
		if err := r.send(&next); err != nil {
			r.report()
			e := asCLIError(err)
			advice := "run the same command again, it skips existing accounts"
			if r.update {
				advice = "import the file from this line on, since the same command would change the earlier accounts again; a CSV still needs its first line"
			}
			return &cliError{exit: e.exit, field: e.field, message: fmt.Sprintf("%s; the import stopped at line %d: %s", e.message, next.lines[0], advice)}
		}
		fmt.Fprint(r.status, clearLine, progress(r.total, time.Since(r.began), r.file))
	}
	if end == io.EOF && empty {
		return errEmpty
	}
	r.report()
	if end != io.EOF {
		return fmt.Errorf("reading the file: %w", end)
	}
	if r.total.Failed > 0 {
		return &cliError{exit: exitFailed} // everything was printed
	}
	return nil
}

var errEmpty = errors.New("the file has no accounts; write one JSON object per line, or CSV whose first line names the columns")

// fill reads the next chunk. It reports records that can't be read as failed.
func (r *importRun) fill(next *chunk, records importRecords) error {
	for len(next.lines) < chunkLines && next.body.Len() < chunkBytes {
		line, record, err := records.Next()
		switch {
		case err != nil && line == 0:
			return err
		case err != nil:
			r.reportLine(api.Failure{Line: line, Error: err.Error()})
		default:
			next.lines = append(next.lines, line)
			next.body.Write(record)
			next.body.WriteByte('\n')
		}
	}
	return nil
}

// send imports a chunk. If the request fails, it sends the rest of the chunk again, and
// accounts that were already imported count as skipped.
func (r *importRun) send(next *chunk) error {
	for try := 0; len(next.lines) > 0; try++ {
		counts, lines, err := r.sendOnce(next.body.Bytes())
		ended := len(next.lines)
		if err != nil {
			ended = min(max(counts.Line-1, 0), ended)
		}
		slices.SortFunc(lines, func(a, b api.Failure) int { return cmp.Compare(a.Line, b.Line) })
		for _, f := range lines {
			switch {
			case f.Line <= ended || f.Warning != "": // it is stored, and will be skipped when it is sent again
				f.Line = next.lines[f.Line-1]
				r.reportLine(f)
			case f.Skipped != "":
				counts.Skipped-- // it is sent again
			}
		}
		r.total.Created += counts.Created
		r.total.Updated += counts.Updated
		r.total.Skipped += counts.Skipped
		next.drop(ended)
		if err == nil {
			return nil
		}
		if asCLIError(err).exit != exitUnreachable || try == importRetries {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-r.cmd.Context().Done():
			return r.orInterrupted(err)
		}
	}
	return nil
}

// drop removes the first n lines.
func (c *chunk) drop(n int) {
	c.lines = c.lines[n:]
	for range n {
		_, _ = c.body.ReadBytes('\n')
	}
}

// sendOnce returns the counts of a chunk and the lines that were not imported. If the
// server aborted the import, it returns what the server did until then, with the error.
func (r *importRun) sendOnce(body []byte) (counts api.Counts, lines []api.Failure, err error) {
	response, err := r.open(http.MethodPost, r.path, bytes.NewReader(body))
	if err != nil {
		return counts, nil, err
	}
	defer response.Body.Close()
	answer := json.NewDecoder(response.Body)
	var one json.RawMessage
	for err = answer.Decode(&one); err == nil && bytes.HasPrefix(one, []byte(`{"line"`)); err = answer.Decode(&one) {
		var f api.Failure
		_ = json.Unmarshal(one, &f) // Decode has checked it
		lines = append(lines, f)
	}
	if err == nil {
		err = json.Unmarshal(one, &counts) // the last line has the counts
	}
	if err != nil {
		return api.Counts{}, nil, r.unreachable("the server's answer was interrupted")
	}
	if counts.Error != "" {
		return counts, lines, r.unreachable(counts.Error)
	}
	return counts, lines, nil
}

// reportLine reports a line that was not imported, or has a warning. Skipped lines and
// warnings are printed at the end.
func (r *importRun) reportLine(f api.Failure) {
	switch {
	case f.Warning != "":
		r.total.Warned++
	case f.Skipped == "":
		r.total.Failed++
	}
	switch {
	case r.json:
		_ = api.WriteLine(r.cmd.OutOrStdout(), f)
	case f.Skipped != "":
		r.skipped[f.Skipped] = append(r.skipped[f.Skipped], f.Line)
	case f.Warning != "":
		r.warned[f.Warning] = append(r.warned[f.Warning], f.Line)
	case r.total.Failed > maxShown:
	default:
		if f.Field != "" && !strings.HasPrefix(f.Error, f.Field) {
			f.Error = f.Field + ": " + f.Error
		}
		fmt.Fprint(r.status, clearLine)
		fmt.Fprintf(r.cmd.ErrOrStderr(), "line %d: %s\n", f.Line, printable(f.Error))
	}
}

// report prints the counts at the end.
func (r *importRun) report() {
	fmt.Fprint(r.status, clearLine)
	if r.json {
		_ = api.WriteLine(r.cmd.OutOrStdout(), r.total)
		return
	}
	errs := r.cmd.ErrOrStderr()
	if more := r.total.Failed - maxShown; more > 0 {
		fmt.Fprintf(errs, "… and %s more\n", comma(more))
	}
	for _, reason := range slices.Sorted(maps.Keys(r.warned)) {
		lines := r.warned[reason]
		fmt.Fprintf(errs, "warning for %s of the lines, %s: %s\n", comma(len(lines)), ranges(lines, maxShown), reason)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Fprintf(errs, "skipped lines %s: %s\n", ranges(r.skipped[reason], maxShown), reason)
	}
	fmt.Fprintf(r.cmd.OutOrStdout(), "%s created, %s updated, %s skipped, %s failed in %s\n",
		comma(r.total.Created), comma(r.total.Updated), comma(r.total.Skipped), comma(r.total.Failed), time.Since(r.began).Round(100*time.Millisecond))
}

// clearLine erases the progress from the terminal.
const clearLine = "\r\x1b[K"
