package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// vitals are the numbers that grow when a process leaks.
type vitals struct {
	goroutines, descriptors int
	heap, resident          int64 // in bytes; heap is what is in use after a garbage collection
}

func (v vitals) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MiB of heap, %.1f MiB resident",
		v.goroutines, v.descriptors, mebibytes(v.heap), mebibytes(v.resident))
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

var (
	heapInUse       = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)
	goroutinesTotal = regexp.MustCompile(`^goroutine profile: total (\d+)`)
)

// vitals collects garbage and then measures.
func (s *site) vitals() vitals {
	s.t.Helper()
	s.fromAdmin("/debug/pprof/heap?gc=1&debug=1") // objects with finalizers are freed by the second collection
	heap := s.number(heapInUse, s.fromAdmin("/debug/pprof/heap?gc=1&debug=1"))
	return vitals{
		goroutines:  int(s.number(goroutinesTotal, s.fromAdmin("/debug/pprof/goroutine?debug=1"))),
		descriptors: len(s.openFiles()),
		heap:        heap,
		resident:    s.memory("VmRSS"),
	}
}

func (s *site) number(pattern *regexp.Regexp, text string) int64 {
	s.t.Helper()
	found := pattern.FindStringSubmatch(text)
	if found == nil {
		s.t.Fatalf("there is no %v in %.200s", pattern, text)
	}
	return get(strconv.ParseInt(found[1], 10, 64))(s.t)
}

// openFiles returns what the descriptors of the process refer to.
func (s *site) openFiles() []string {
	s.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		storetest.SkipOrFail(s.t, fmt.Sprintf("descriptors can't be counted here: %v", err))
	}
	var files []string
	for _, e := range entries {
		if file, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			files = append(files, file)
		}
	}
	return files
}

// holds reports whether the process has a file open whose name begins with name.
func (s *site) holds(name string) bool {
	s.t.Helper()
	for _, file := range s.openFiles() {
		if strings.HasPrefix(filepath.Base(file), name) {
			return true
		}
	}
	return false
}

// memory returns a field of /proc/<pid>/status in bytes, summed over the process and
// its children: VmRSS, or VmHWM, which is the peak.
func (s *site) memory(field string) int64 {
	s.t.Helper()
	n := memoryOf(s.cmd.Process.Pid, field)
	if n == 0 {
		storetest.SkipOrFail(s.t, "memory can't be measured here")
	}
	return n
}

// memoryOf is memory for a process; 0 if the process has exited.
func memoryOf(pid int, field string) (bytes int64) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			bytes += n << 10
		}
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range threads {
		list, _ := os.ReadFile(file)
		for child := range strings.FieldsSeq(string(list)) {
			if n, err := strconv.Atoi(child); err == nil {
				bytes += memoryOf(n, field)
			}
		}
	}
	return bytes
}

// settled measures after the process has stopped releasing resources.
func (s *site) settled() vitals {
	s.t.Helper()
	before := s.vitals()
	for range 30 {
		time.Sleep(2 * time.Second) // connections that are idle for a second are closed by then
		now := s.vitals()
		if now.goroutines >= before.goroutines && now.descriptors >= before.descriptors {
			return now
		}
		before = now
	}
	return before
}

// all returns the nodes of the site, or the site itself if it is a single node.
func (s *site) all() []*site {
	if s.nodes != nil {
		return s.nodes
	}
	return []*site{s}
}

// eventually is storetest.Eventually with a timeout of 30 s.
func (s *site) eventually(what string, is func() bool) {
	s.t.Helper()
	storetest.Eventually(s.t, 30*time.Second, what, is)
}
