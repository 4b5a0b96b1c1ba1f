package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/results"
)

// check is the command "check": it checks the files that k6 has left when it was run by hand. Several samples are those
// of the parts of one run, whose limits are counted together. It returns an error if not everything held.
func check(ctx context.Context, args []string) error {
	flags := newFlags("check", "FILE…", `checks the samples (k6 run --out json=NAME.samples.json.gz) and the summaries (SUMMARY=NAME.summary.json)
of one script, of one run by hand or of all parts of a distributed run, and leaves result.json, report.html and
junit.xml`)
	name := flags.String("name", "", "what the script is called; empty: the first file's name up to its first dot")
	accounts := flags.String("accounts", "", "the `file` of accounts, for limits that are not the contract's; empty: ACCOUNTS, if that is set")
	to := flags.String("to", "", "the `folder` of the result; empty: that of the first file")
	fresh := flags.Bool("fresh", false, "the accounts had not been used during the hour before, which is the longest span of a limit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("name the files: at least one NAME.samples.json.gz and its NAME.summary.json")
	}

	if *to == "" {
		*to = filepath.Dir(flags.Arg(0))
	}

	if err := mayStoreCheck(*to); err != nil {
		return err
	}

	files, err := filesToCheck(*to, flags.Args())
	if err != nil {
		return err
	}

	if *accounts == "" {
		*accounts = os.Getenv("ACCOUNTS")
	}

	limits, err := limitsIn(*accounts)
	if err != nil {
		return err
	}

	if *name == "" {
		*name, _, _ = strings.Cut(filepath.Base(flags.Arg(0)), ".")
	}

	result, err := results.Build(files, results.Options{
		Name:          *name,
		File:          *name + ".js",
		Limits:        limits,
		FreshAccounts: *fresh,
	})
	if err != nil {
		return err
	}

	result.Webhooks = &results.Webhooks{How: results.WebhooksNotChecked, Why: "they are looked at while a run goes on (make loadtest)"}
	result.CollectFailures()

	run := &results.Run{
		Began:       result.Began,
		TookSeconds: result.TookSeconds,
		Target:      checkedTarget,
		Machine:     harness.DescribeMachine(ctx),
		K6:          harness.K6Version,
		Generator:   generatorOf(len(files.Samples)),
		Scripts:     []*results.Script{result},
	}
	if err := store(files.Folder, run, nil); err != nil {
		return err
	}

	fmt.Printf("%s\n%s\n", result.Proves, result.Headline())
	for _, failure := range result.Failures {
		fmt.Printf("  - %s\n", failure)
	}

	fmt.Printf("page: %s\n", filepath.Join(files.Folder, pageFile))
	if !run.Passed() {
		return errors.New("not everything held")
	}

	return nil
}

// checkedTarget is the target of what was checked: the files do not name theirs.
const checkedTarget = "as the files say"

// mayStoreCheck returns an error if a folder has the result of something else than an earlier check, which would be lost.
func mayStoreCheck(folder string) error {
	stored, err := results.ReadFile(filepath.Join(folder, resultFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}

	if err != nil || stored.Target != checkedTarget {
		return fmt.Errorf("%s has the result of a run: name another folder with -to", folder)
	}
	return nil
}

// generatorOf says how k6 ran, for the page.
func generatorOf(parts int) string {
	if parts == 1 {
		return "k6 ran by hand."
	}
	return fmt.Sprintf("k6 ran by hand, in %d parts.", parts)
}

// filesToCheck sorts files into samples and summaries, with names relative to the result's folder. A file that does not
// exist is an error.
func filesToCheck(folder string, paths []string) (results.ScriptFiles, error) {
	files := results.ScriptFiles{Folder: folder}
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return files, err
		}

		relative, err := filepath.Rel(files.Folder, path)
		if err != nil {
			return files, err
		}

		isSummary := strings.HasSuffix(path, ".summary.json")
		if isSummary {
			files.Summaries = append(files.Summaries, relative)
		} else {
			files.Samples = append(files.Samples, relative)
		}
	}

	return files, nil
}

// limitsIn reads the limits of accounts, by label. Without accounts it returns none: all have the contract's.
func limitsIn(accounts string) (map[string]results.Limits, error) {
	limits := map[string]results.Limits{}
	if accounts == "" {
		return limits, nil
	}

	records, err := accountsIn(accounts)
	if err != nil {
		return nil, err
	}

	for i := range records {
		limits[label(i)] = records[i].Limits.forResults()
	}

	return limits, nil
}
