package receiver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signatureCase is one webhook for the snippets; every language has to agree
// with Verify about it.
type signatureCase struct {
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Now     int64             `json:"now"`
}

func signatureCases() (cases []signatureCase, want string) {
	add := func(valid bool, change func(*signatureCase)) {
		m := statusChanged("evt_1", "o1", "Delivered", now)
		m.body = strings.Replace(m.body, "E-1", "Kadıköy ☕", 1)
		c := signatureCase{Secret: secret, Headers: map[string]string{}, Body: m.body, Now: now.Unix()}
		for name, values := range m.headers() {
			c.Headers[strings.ToLower(name)] = values[0]
		}
		change(&c)
		cases = append(cases, c)
		want += fmt.Sprintln(valid)
	}
	add(true, func(*signatureCase) {})
	add(true, func(c *signatureCase) { c.Now += 299 })
	add(true, func(c *signatureCase) { c.Headers["webhook-signature"] = "v1,AAAA " + c.Headers["webhook-signature"] })
	add(false, func(c *signatureCase) { c.Now += 301 })
	add(false, func(c *signatureCase) { c.Now -= 301 })
	add(false, func(c *signatureCase) { c.Body += " " })
	add(false, func(c *signatureCase) { c.Secret = "whsec_" + strings.Repeat("A", 43) + "=" })
	add(false, func(c *signatureCase) { c.Headers["webhook-timestamp"] = "soon" })
	add(false, func(c *signatureCase) { c.Headers["webhook-id"] = "evt_2" })
	for _, name := range []string{"x-service-signature", "webhook-id", "webhook-timestamp", "webhook-signature"} {
		add(false, func(c *signatureCase) { delete(c.Headers, name) })
		add(false, func(c *signatureCase) { c.Headers[name] = "" })
		add(false, func(c *signatureCase) { c.Headers[name] = "é" })
	}
	return cases, want
}

func TestVerify_AgreesWithTheCases(t *testing.T) {
	cases, want := signatureCases()
	got := ""
	for _, c := range cases {
		h := http.Header{}
		for name, value := range c.Headers {
			h.Set(name, value)
		}
		got += fmt.Sprintln(Verify(c.Secret, h, []byte(c.Body), time.Unix(c.Now, 0)) == nil)
	}
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// The snippets of the README run in their own languages. Where an interpreter
// is not installed the test says so; nothing here depends on it.
func TestSnippets_AgreeWithTheCases(t *testing.T) {
	cases, want := signatureCases()
	var input bytes.Buffer
	for _, c := range cases {
		line, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		input.Write(append(line, '\n'))
	}
	for interpreter, script := range map[string]string{"node": "run.js", "python3": "run.py", "php": "run.php"} {
		t.Run(interpreter, func(t *testing.T) {
			path, err := exec.LookPath(interpreter)
			if err != nil {
				t.Logf("%s is not installed here: %s was not run", interpreter, script)
				return
			}
			cmd := exec.Command(path, filepath.Join("snippets", script))
			cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
			cmd.Stdin = bytes.NewReader(input.Bytes())
			got, err := cmd.CombinedOutput()
			if err != nil || string(got) != want {
				t.Errorf("%v, got\n%swant\n%s", err, got, want)
			}
		})
	}
}

// The README quotes the snippets as they are.
func TestReadme_QuotesTheSnippets(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for language, file := range map[string]string{
		"go": "verify.go", "js": "snippets/verify.js", "python": "snippets/verify.py", "php": "snippets/verify.php",
	} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		quote := "```" + language + "\n" + strings.TrimRight(string(code), "\n") + "\n```"
		if !strings.Contains(string(readme), quote) {
			t.Errorf("README.md does not quote %s as it is", file)
		}
	}
}
