package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/k6/results"
)

// runsFolder returns the folder that has a folder for each run.
func runsFolder() (string, error) {
	data, err := stack.DataDir()
	return filepath.Join(data, "loadtest"), err
}

// newRunFolder makes the folder of a run, which is named after the time at which it began, and makes the link "latest"
// point to it.
func newRunFolder(began time.Time) (string, error) {
	all, err := runsFolder()
	if err != nil {
		return "", err
	}
	name := began.UTC().Format("20060102T150405Z")
	folder := filepath.Join(all, name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}

	latest := filepath.Join(all, "latest")
	if err := os.Remove(latest); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return folder, os.Symlink(name, latest)
}

// The files of a run.
const (
	resultFile = "result.json"
	pageFile   = "report.html"
	junitFile  = "junit.xml"
)

// store writes a run into a folder: its result, page and JUnit file. The page compares it with the earlier run, which may
// be nil.
func store(folder string, run, earlier *results.Run) error {
	if err := run.WriteFile(filepath.Join(folder, resultFile)); err != nil {
		return err
	}
	if err := writePage(folder, run, earlier); err != nil {
		return err
	}

	junit, err := os.Create(filepath.Join(folder, junitFile))
	if err != nil {
		return err
	}
	return errors.Join(results.WriteJUnit(junit, run), junit.Close())
}

// writePage writes the page of a run into a folder. earlier may be nil.
func writePage(folder string, run, earlier *results.Run) error {
	page, err := os.Create(filepath.Join(folder, pageFile))
	if err != nil {
		return err
	}
	return errors.Join(results.WritePage(page, run, earlier), page.Close())
}

// makePage is the command "page".
func makePage(_ context.Context, args []string) error {
	flags := newFlags("page", "FOLDER", "makes the page of a stored run again, from its result.json")
	earlierFile := flags.String("compare", "", "a result.json of an earlier run, to compare with")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("name the folder of one run, such as .data/loadtest/latest")
	}

	folder := flags.Arg(0)
	run, err := results.ReadFile(filepath.Join(folder, resultFile))
	if err != nil {
		return err
	}
	earlier, err := readEarlier(*earlierFile)
	if err != nil {
		return err
	}
	if err := writePage(folder, run, earlier); err != nil {
		return err
	}
	fmt.Println("page:", filepath.Join(folder, pageFile))
	return nil
}

// readEarlier reads the run to compare with. Without a path it returns nil.
func readEarlier(path string) (*results.Run, error) {
	if path == "" {
		return nil, nil
	}
	return readRun(path)
}

// readRun reads the run of a result.json, or of the folder that has one.
func readRun(path string) (*results.Run, error) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		path = filepath.Join(path, resultFile)
	}
	return results.ReadFile(path)
}

// compare is the command "compare". It returns an error if something has become slower.
func compare(_ context.Context, args []string) error {
	flags := newFlags("compare", "OLD NEW", "compares two stored runs, each a result.json or its folder")
	factor := flags.Float64("factor", 1.5, "how many times slower than before, each relative to its own empty path, is a regression")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return errors.New("name two runs, the older first: each a result.json or its folder")
	}
	if *factor <= 1 {
		return fmt.Errorf("-factor is %g: it must be above 1", *factor)
	}

	before, err := readRun(flags.Arg(0))
	if err != nil {
		return err
	}
	after, err := readRun(flags.Arg(1))
	if err != nil {
		return err
	}
	return printComparison(before, after, *factor)
}

// printComparison prints a comparison of two runs, and returns an error if something has become slower. factor 0 is that
// of results.Compare.
func printComparison(before, after *results.Run, factor float64) error {
	comparison := results.Compare(before, after, factor)
	if err := comparison.WriteTable(os.Stdout); err != nil {
		return err
	}
	if len(comparison.Regressions) > 0 {
		return fmt.Errorf("slower than before: %s", strings.Join(comparison.Regressions, "; "))
	}
	return nil
}
