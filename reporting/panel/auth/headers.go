package auth

import "net/http"

// Content-Security-Policies. Whatever a page shows, nothing of another origin is
// loaded, nothing inline runs, and nobody frames it.
const (
	// PolicyPage is for pages with a stylesheet and forms, without scripts.
	PolicyPage = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	// PolicyScripts is PolicyPage for pages whose own scripts fetch more of the
	// panel.
	PolicyScripts = PolicyPage + "; script-src 'self'; connect-src 'self'"
	// PolicyData is for answers that are no pages: should a browser show one
	// nevertheless, it shows text.
	PolicyData = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)

// Protect sets the headers that every answer of the panel carries, before next
// runs; next may replace one. Referrer-Policy keeps paths and queries from
// other sites, and still lets browsers say where a form came from.
func Protect(policy string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
