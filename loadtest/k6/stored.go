package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
// point to it. Of two runs that begin in the same second the later one's name has a number at its end.
func newRunFolder(began time.Time) (string, error) {
	all, err := runsFolder()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(all, 0o755); err != nil {
		return "", err
	}

	moment := began.UTC().Format("20060102T150405Z")
	name := moment
	err = os.Mkdir(filepath.Join(all, name), 0o755)
	for n := 2; errors.Is(err, os.ErrExist); n++ {
		name = fmt.Sprintf("%s-%d", moment, n)
		err = os.Mkdir(filepath.Join(all, name), 0o755)
	}

	if err != nil {
		return "", err
	}

	return filepath.Join(all, name), linkLatest(all, name)
}

// linkLatest makes the link "latest" in the folder of all runs point to a run. It replaces the link as a whole, because
// another run may do the same.
func linkLatest(all, name string) error {
	unfinished := filepath.Join(all, "."+name)
	if err := os.Symlink(name, unfinished); err != nil {
		return err
	}
	return os.Rename(unfinished, filepath.Join(all, "latest"))
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
	factor := flags.Float64("factor", 1.5, "how many times slower than before is a regression")
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

// printComparison prints a comparison of two runs, and returns an error if something has become slower, or if nothing
// could be compared. factor 0 is that of results.Compare.
func printComparison(before, after *results.Run, factor float64) error {
	comparison := results.Compare(before, after, factor)
	if err := comparison.WriteTable(os.Stdout); err != nil {
		return err
	}
	return comparison.Err()
}
