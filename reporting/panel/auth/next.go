package auth

import (
	"net/http"
	"net/url"
	"strings"
)

// maxNext bounds where to go after signing in, in bytes.
const maxNext = 2048

// localPath is next if it is a path of this panel, with or without a query, and
// "/" otherwise. Browsers take "//host", "/\host" and either with a tab in
// between for another host, and what is escaped in next may come out unescaped,
// so all are looked at: as given, decoded, and as it will be sent. The pages of
// signing in would lead in circles.
func localPath(next string) string {
	if len(next) > maxNext || !local(next) {
		return "/"
	}
	u, err := url.Parse(next) // refuses control characters
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !local(u.Path) || u.Path == "/login" || u.Path == "/logout" {
		return "/"
	}
	if path := u.String(); local(path) {
		return path
	}
	return "/"
}

func local(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && !strings.Contains(path, `\`)
}

// loginPath is the sign-in page that leads to next.
func loginPath(next string) string {
	if next = localPath(next); next == "/" {
		return "/login"
	}
	return "/login?" + url.Values{"next": {next}}.Encode()
}

// redirect sends the browser to a local path with GET.
func redirect(w http.ResponseWriter, path string) {
	h := w.Header()
	h.Set("Location", path)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}
