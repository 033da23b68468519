package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// What Go's runtime says of a subject, by an admin route of the test binary

func init() { caddy.RegisterModule(benchAdmin{}) }

type benchAdmin struct{}

// CaddyModule implements caddy.Module.
func (benchAdmin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.mnemogate_bench", New: func() caddy.Module { return benchAdmin{} }}
}

// Routes implements caddy.AdminRouter.
func (benchAdmin) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: "/bench/runtime", Handler: caddy.AdminHandlerFunc(tellRuntime)}}
}

// A usage is what a process has used since it began.
type usage struct {
	CPU        time.Duration // as the kernel counts it, in steps of 10 ms
	Objects    uint64        // allocated
	Bytes      uint64        // allocated
	GC         time.Duration // CPU time of the collector but for what nobody else wanted, as of the last collection
	GCs        uint64        // collections
	Heap       uint64        // live objects and what is not yet collected
	Collecting time.Duration // how long the collections took that this call asked for
	Goroutines int
}

// tellRuntime answers with the usage, after the collections that a POST asks for.
func tellRuntime(w http.ResponseWriter, r *http.Request) error {
	u := usage{Goroutines: runtime.NumGoroutine()}
	if n, _ := strconv.Atoi(r.URL.Query().Get("collect")); n > 0 {
		began := time.Now()
		for range n {
			runtime.GC()
		}
		u.Collecting = time.Since(began)
	}
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:objects"},
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/cpu/classes/gc/total:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/idle:cpu-seconds"},
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/memory/classes/heap/objects:bytes"},
	}
	metrics.Read(samples)
	u.Objects, u.Bytes = samples[0].Value.Uint64(), samples[1].Value.Uint64()
	u.GC = time.Duration((samples[2].Value.Float64() - samples[3].Value.Float64()) * 1e9)
	u.GCs, u.Heap = samples[4].Value.Uint64(), samples[5].Value.Uint64()
	return json.NewEncoder(w).Encode(u)
}

// usage asks a subject, which collects garbage so often before.
func (s *subject) usage(collections int) usage {
	s.b.Helper()
	var u usage
	if err := json.Unmarshal(s.ask("GET", fmt.Sprint("/bench/runtime?collect=", collections), "", nil), &u); err != nil {
		s.b.Fatal(err)
	}
	u.CPU = cpuTime(s.cmd.Process.Pid)
	return u
}

// cpuTime is what a process used, 0 where there is no /proc.
func cpuTime(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

// peakMemory is the most that a process has ever had resident, and each of its
// descendants, in bytes.
func peakMemory(pid int) int { return memoryOf(pid, "VmHWM") }

// memoryOf is a field of a process's status and of its descendants' together, in
// bytes.
func memoryOf(pid int, field string) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	sum := 0
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kb, _ := strconv.Atoi(strings.Fields(value)[0])
			sum = kb << 10
		}
	}
	children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range children {
		list, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(list)) {
			if pid, err := strconv.Atoi(field); err == nil {
				sum += memoryOf(pid, field)
			}
		}
	}
	return sum
}

// Interface guards
var _ caddy.AdminRouter = benchAdmin{}
