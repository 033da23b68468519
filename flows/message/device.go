package message

import "strings"

// named are parts of user agents and the names that users know, the most specific first:
// Edge also calls itself Chrome and Safari.
type named []struct{ part, name string }

var browsers = named{
	{"Edg", "Edge"}, {"OPR/", "Opera"}, {"SamsungBrowser/", "Samsung Internet"}, {"Firefox/", "Firefox"}, {"FxiOS/", "Firefox"},
	{"CriOS/", "Chrome"}, {"Chrome/", "Chrome"}, {"Version/", "Safari"},
}

var systems = named{
	{"Windows", "Windows"}, {"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"CrOS", "ChromeOS"}, {"Mac OS X", "Mac"}, {"Linux", "Linux"},
}

func (n named) in(userAgent string) string {
	for _, known := range n {
		if strings.Contains(userAgent, known.part) {
			return known.name
		}
	}
	return ""
}

// Device names the browser and system of a user agent, such as "Firefox (Windows)". It
// returns "" if it knows neither. It repeats nothing from the user agent, in which a
// stranger can write anything.
func Device(userAgent string) string {
	browser, system := browsers.in(userAgent), systems.in(userAgent)
	if browser != "" && system != "" {
		return browser + " (" + system + ")"
	}
	return browser + system
}
