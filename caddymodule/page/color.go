package page

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// An rgb is a color of sRGB, each part from 0 to 1.
type rgb [3]float64

var (
	builtInColor = rgb{0x2f / 255., 0x5f / 255., 0xb3 / 255.}
	white        = rgb{1, 1, 1}
	black        = rgb{}
	// What text stands on, in page.css as --paper.
	lightPaper = rgb{1, 1, 1}
	darkPaper  = rgb{0x1d / 255., 0x20 / 255., 0x27 / 255.}
)

// readable is the contrast of text that WCAG 2.2, 1.4.3 asks for, with a little more
// for what rounding takes.
const readable = 4.6

// themeOf is the sheet of a color: behind white or black text, whichever is read
// better; and as that of links, made darker or lighter until it can be read.
func themeOf(c rgb) string {
	on := white
	if contrast(c, black) > contrast(c, white) {
		on = black
	}
	return fmt.Sprintf(":root{--brand:%s;--on-brand:%s;--link-light:%s;--link-dark:%s}\n",
		c, on, towards(c, black, lightPaper), towards(c, white, darkPaper))
}

// towards mixes a color with an end until it can be read on paper.
func towards(c, end, paper rgb) rgb {
	mixed := c
	for part := 0.; part <= 1 && contrast(mixed, paper) < readable; part += 0.02 {
		for i := range mixed {
			mixed[i] = c[i] + (end[i]-c[i])*part
		}
	}
	return mixed
}

// contrast is the contrast ratio of WCAG 2.2.
func contrast(a, b rgb) float64 {
	lighter, darker := a.luminance(), b.luminance()
	if lighter < darker {
		lighter, darker = darker, lighter
	}
	return (lighter + 0.05) / (darker + 0.05)
}

func (c rgb) luminance() float64 {
	linear := func(part float64) float64 {
		if part <= 0.04045 {
			return part / 12.92
		}
		return math.Pow((part+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c[0]) + 0.7152*linear(c[1]) + 0.0722*linear(c[2])
}

// String is the color in CSS.
func (c rgb) String() string {
	part := func(x float64) int { return int(math.Round(x * 255)) }
	return fmt.Sprintf("#%02x%02x%02x", part(c[0]), part(c[1]), part(c[2]))
}

var (
	hexColor      = regexp.MustCompile(`^#([0-9a-f]{3}|[0-9a-f]{6})$`)
	functionColor = regexp.MustCompile(`^(rgb|hsl)\(\s*([0-9.]+)(?:deg)?[\s,]+([0-9.]+)(%?)[\s,]+([0-9.]+)(%?)\s*\)$`)
)

// parseColor reads a color of CSS that can be seen through by nobody: #rgb, #rrggbb,
// rgb(), hsl() and the names of CSS. Its errors begin with the directive.
func parseColor(s string) (rgb, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	if n, ok := colorNames[text]; ok {
		return rgb{float64(n>>16) / 255, float64(n>>8&0xff) / 255, float64(n&0xff) / 255}, nil
	}
	if m := hexColor.FindStringSubmatch(text); m != nil {
		digits := m[1]
		if len(digits) == 3 {
			digits = string([]byte{digits[0], digits[0], digits[1], digits[1], digits[2], digits[2]})
		}
		n, _ := strconv.ParseUint(digits, 16, 32) // matched
		return rgb{float64(n>>16) / 255, float64(n>>8&0xff) / 255, float64(n&0xff) / 255}, nil
	}
	if m := functionColor.FindStringSubmatch(text); m != nil {
		a, errA := strconv.ParseFloat(m[2], 64)
		b, errB := strconv.ParseFloat(m[3], 64)
		c, errC := strconv.ParseFloat(m[5], 64)
		switch numbers := errA == nil && errB == nil && errC == nil; {
		case numbers && m[1] == "rgb" && m[4] == "" && m[6] == "" && a <= 255 && b <= 255 && c <= 255:
			return rgb{a / 255, b / 255, c / 255}, nil
		case numbers && m[1] == "hsl" && m[4] == "%" && m[6] == "%" && a <= 360 && b <= 100 && c <= 100:
			return fromHSL(a, b/100, c/100), nil
		}
	}
	return rgb{}, fmt.Errorf(`color: %q is no color that the page can take; write it as "#336699" (in quotes), rgb(51, 102, 153), hsl(210, 50%%, 40%%) or by its name in CSS`, s)
}

// fromHSL is the conversion of CSS Color 4, 7.1.
func fromHSL(hue, saturation, lightness float64) rgb {
	part := func(n float64) float64 {
		k := math.Mod(n+hue/30, 12)
		return lightness - saturation*min(lightness, 1-lightness)*max(-1, min(k-3, 9-k, 1))
	}
	return rgb{part(0), part(8), part(4)}
}
