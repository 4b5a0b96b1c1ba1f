// Package version says which release and which commit a program was built from.
package version

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// release and revision are given by builds that have no .git folder:
// -ldflags "-X vendorapi/internal/version.release=1.2.3 -X vendorapi/internal/version.revision=…".
var release, revision string

// Release is that of CHANGELOG.md, 1.2.3; between releases the toolchain's pseudo-version
// of the commit. It is "unknown" when the build did not say.
func Release() string {
	if info, ok := debug.ReadBuildInfo(); ok && release == "" && info.Main.Version != "(devel)" {
		return cmp.Or(strings.TrimPrefix(info.Main.Version, "v"), "unknown")
	}
	return cmp.Or(release, "unknown")
}

// Revision is the commit, or "unknown".
func Revision() string {
	if info, ok := debug.ReadBuildInfo(); ok && revision == "" {
		if i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.revision" }); i >= 0 {
			return info.Settings[i].Value
		}
	}
	return cmp.Or(revision, "unknown")
}

// String is what --version prints behind the program's name.
func String() string {
	return fmt.Sprintf("%s (commit %s, %s)", Release(), Revision(), runtime.Version())
}

// Usage describes the flag -version.
const Usage = "print the release and the commit, and end"

// AddFlag gives a tool, whose flags are those of package flag, the flag -version.
func AddFlag(name string) {
	flag.BoolFunc("version", Usage, func(string) error {
		fmt.Println(name, String())
		os.Exit(0)
		return nil
	})
}
