// isReturnTo reports whether a login may lead to s: a path of this origin with an
// optional query and fragment. The server has the same rule (isReturnTo in
// redirect.go).
export function isReturnTo(s) {
  if (s.length > 8192 || !/^\/[!-~]*$/.test(s)) return false;
  const [path] = s.split(/[?#]/, 1);
  if (/%(?![0-9a-f]{2})/i.test(path)) return false;
  const decoded = path.replace(/%(..)/g, (_, hex) => String.fromCharCode(parseInt(hex, 16)));
  return !/\/\/|[\0-\x1f\\\x7f]/.test(decoded);
}

// returnTo returns the path in an address's return_to, or null if no login may lead to
// it. It escapes what searchParams has unescaped, so that links need not escape it twice.
export function returnTo(s) {
  const path = s.replace(/[^!-~]+/g, encodeURIComponent);
  return isReturnTo(path) ? path : null;
}
