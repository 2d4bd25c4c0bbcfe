package live

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// bar draws a share of 0 to 1, width characters wide.
func bar(share float64, width int, s Style) string {
	if width <= 2 || math.IsNaN(share) {
		return ""
	}
	share = min(max(share, 0), 1)
	if !s.Unicode {
		full := int(share * float64(width-2))
		return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-2-full) + "]"
	}
	eighths := int(share * float64(width) * 8)
	text := strings.Repeat("█", eighths/8)
	n := eighths / 8
	if rest := eighths % 8; rest > 0 && n < width {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
		n++
	}
	return text + strings.Repeat("░", width-n)
}

// resample returns width values: means of neighbours, or repeated values if there are fewer.
func resample(values []float64, width int) []float64 {
	n := len(values)
	out := make([]float64, width)
	for i := range out {
		from, to := i*n/width, max((i+1)*n/width, i*n/width+1)
		for _, v := range values[from:to] {
			out[i] += v / float64(to-from)
		}
	}
	return out
}

func extent(values []float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	return low, high
}

// spark returns a chart of values as height lines of characters, the upper line first. The least value is the lowest mark.
func spark(values []float64, height int, s Style) []string {
	levels := []rune(" ▁▂▃▄▅▆▇█")
	if !s.Unicode {
		levels = []rune(" .:#")
		if height == 1 {
			levels = []rune(" _.-=*#")
		}
	}
	each := len(levels) - 1
	low, high := extent(values)
	lines := make([]strings.Builder, height)
	for _, v := range values {
		level := 1
		if high > low {
			level = 1 + int(math.Round((v-low)/(high-low)*float64(each*height-1)))
		}
		for i := range lines {
			part := min(max(level-(height-1-i)*each, 0), each)
			lines[i].WriteRune(levels[part])
		}
	}
	out := make([]string, height)
	for i := range lines {
		out[i] = lines[i].String()
	}
	return out
}

// thousands formats a number with commas.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// number formats a number with three digits or more.
func number(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Sprint(v)
	case abs >= 1e7:
		return strconv.FormatFloat(v, 'g', 4, 64)
	case abs >= 1000:
		return thousands(int(math.Round(v)))
	case abs >= 10 || abs == 0:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// clock formats a time as 0:05, 12:34, 1:02:03 or 2d 03:04:05.
func clock(d time.Duration) string {
	s := int(d / time.Second)
	switch {
	case s < 3600:
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	case s < 24*3600:
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%dd %02d:%02d:%02d", s/(24*3600), s/3600%24, s/60%60, s%60)
}
