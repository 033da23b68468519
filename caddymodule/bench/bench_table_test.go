package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A figuresTable is what a benchmark prints for docs/performance.md, besides its metrics.
type figuresTable struct {
	head []string
	rows [][]string
}

func (t *figuresTable) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		switch v := cell.(type) {
		case time.Duration:
			row[i] = number3(float64(v)/1e6) + " ms"
		case float64:
			row[i] = number3(v)
		default:
			row[i] = fmt.Sprint(v)
		}
	}
	t.rows = append(t.rows, row)
}

// number3 has three digits that mean something, and no exponent.
func number3(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10 || v <= -10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// print writes the table once the benchmark's own line is out.
func (t *figuresTable) print() {
	if len(t.rows) == 0 {
		return
	}
	line := func(cells []string) { fmt.Println("| " + strings.Join(cells, " | ") + " |") }
	fmt.Println()
	line(t.head)
	line(slices.Repeat([]string{"---"}, len(t.head)))
	for _, row := range t.rows {
		line(row)
	}
	fmt.Println()
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
