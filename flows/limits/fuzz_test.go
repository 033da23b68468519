package limits

import (
	"net/netip"
	"testing"
)

func FuzzAddressRanges(f *testing.F) {
	for _, s := range []string{
		"192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "2001:DB8:0:0:1::2", "fe80::1%eth0", "::1", "@", "", "192.0.2.1:80", "[::1]", "::ffff:c000:201%x", "192.0.2.01",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ends := func(s string) (narrow, wide string) {
			ranges := addressRanges(s)
			return ranges[0], ranges[len(ranges)-1]
		}
		narrow, wide := ends(s)
		for _, key := range addressRanges(s) {
			if again, _ := ends(key); again != key {
				t.Errorf("%q is counted as %q, that as %q", s, key, again)
			}
		}
		ip, err := netip.ParseAddr(s)
		if err != nil {
			if narrow != s || wide != s {
				t.Errorf("%q, no address, is counted as %q and %q", s, narrow, wide)
			}
			return
		}
		if v4 := ip.Unmap().WithZone("").String(); ip.Unmap().Is4() && (narrow != v4 || wide != v4) {
			t.Errorf("%q is counted as %q and %q", s, narrow, wide)
		}
		spellings := func(ip netip.Addr, what string, want func(n, w string) bool) {
			for _, other := range []string{ip.String(), ip.StringExpanded(), ip.WithZone("eth1").String(), ip.Unmap().String()} {
				if n, w := ends(other); !want(n, w) {
					t.Errorf("%q is counted as %q and %q, but %q, %s, as %q and %q", s, narrow, wide, other, what, n, w)
				}
			}
		}
		bytes := ip.As16()
		if ip.Unmap().Is4() {
			spellings(ip, "the same", func(n, w string) bool { return n == narrow && w == wide })
			return
		}
		change := func(i int, what string, want func(n, w string) bool) {
			bytes[i]++
			if other := netip.AddrFrom16(bytes); !other.Unmap().Is4() {
				spellings(other, what, want)
			}
		}
		change(15, "of its /64", func(n, w string) bool { return n == narrow && w == wide })
		change(7, "of its /48", func(n, w string) bool { return n != narrow && w == wide })
		change(5, "of another /48", func(n, w string) bool { return n != narrow && w != wide })
	})
}
