package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// kept are files of others in this repository: where the licence is, and the file
// and pattern that tell the version.
var kept = []struct {
	name, in, licence string // no file: declared says it
	file, version     string
	declared          string // what the package's metadata on npm says; it comes without a text
}{
	{
		name: "htmx.org", in: "reporting, served to browsers", licence: "reporting/panel/layout/assets/vendor/htmx.LICENCE",
		file: "reporting/panel/layout/assets/vendor/README.md", version: `htmx\.org ([0-9.]+)`,
	},
	{
		name: "chart.js (with @kurkle/color)", in: "reporting, served to browsers", licence: "reporting/panel/layout/assets/vendor/chart.LICENCE",
		file: "reporting/panel/layout/assets/vendor/chart.umd.min.js", version: `Chart\.js v([0-9.]+)`,
	},
	{
		name: "Swagger UI (in github.com/swaggest/swgui)", in: "gateway, served to browsers", declared: "Apache-2.0",
		file: "gateway/docs/docs.go", version: `Swagger UI ([0-9.]+)`,
	},
	{
		name: "outline of Turkey (@rapideditor/country-coder)", in: "gateway worker reporting", licence: "internal/delivery/turkey.LICENCE",
		file: "internal/delivery/turkey.LICENCE", version: `version ([0-9.]+)`,
	},
	{
		name: "@chdb/lib (ClickHouse as a library)", in: "no program; `devclickhouse install` fetches it from npm", declared: "Apache-2.0",
		file: "internal/devclickhouse/libchdb/install.go", version: `const Version = "([^"]+)"`,
	},
}

// besides is what is no Go module. Icons, styles and fonts are this project's own
// or the system's. The ClickHouse library comes from npm onto the machine that
// runs the embedded engine; redis-server and ClickHouse's server are installed
// beside and not part of anything here.
func besides(root string) ([]work, error) {
	var works []work
	for _, k := range kept {
		content, err := os.ReadFile(filepath.Join(root, k.file))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		version := regexp.MustCompile(k.version).FindSubmatch(content)
		if version == nil {
			return nil, fmt.Errorf("%s: %s tells no version", k.name, k.file)
		}
		w := work{name: k.name, version: strings.TrimRight(string(version[1]), "."), in: k.in, declared: k.declared}
		if k.declared != "" {
			works = append(works, w)
			continue
		}
		if err := w.addText(root, filepath.Join(root, k.licence)); err != nil {
			return nil, err
		}
		works = append(works, w)
	}
	return works, nil
}
