package results

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// partSummary returns a summary with a held level and so many requests. more are other fields, each
// followed by a comma.
func partSummary(more string, requests int) string {
	return fmt.Sprintf(`{%s "title": "Title", "levels": [{"metric": "checks", "threshold": "rate==1", "samples": 1, "value": 1, "held": true}],
		"metrics": {"http_reqs": {"values": {"count": %d}}}}`, more, requests)
}

// passingSamples are two requests, and every check holds.
var passingSamples = strings.Replace(sampleLines, `"value":0,"tags":{"check"`, `"value":1,"tags":{"check"`, 1)

func TestBuild_ChecksThatPartsAreWhole(t *testing.T) {
	t.Parallel()

	other := strings.ReplaceAll(passingSamples, `"account":"1"`, `"account":"7"`)
	emptyPathOnly := strings.ReplaceAll(passingSamples, "POST /orders", emptyPath)

	for name, c := range map[string]struct {
		samples, summaries []string // contents
		want               []string // problems
	}{
		"one whole part":      {samples: []string{passingSamples}, summaries: []string{partSummary("", 2)}, want: nil},
		"two whole parts":     {samples: []string{passingSamples, other}, summaries: []string{partSummary("", 2), partSummary(`"knee": null,`, 2)}, want: nil},
		"the empty path":      {samples: []string{emptyPathOnly}, summaries: []string{partSummary("", 2)}, want: nil},
		"not aborted":         {samples: []string{passingSamples}, summaries: []string{partSummary(`"aborted": false,`, 2)}, want: nil},
		"the whole by itself": {samples: []string{passingSamples}, summaries: []string{partSummary(`"segment": null,`, 2)}, want: nil},

		"a summary too few": {
			samples: []string{passingSamples, other}, summaries: []string{partSummary("", 4)},
			want: []string{"the number of summaries is 1 and that of files of samples 2: each part of a run leaves one of both"},
		},
		"an aborted run": {
			samples: []string{passingSamples}, summaries: []string{`{"aborted": true, "levels": [], "metrics": {"http_reqs": {"values": {"count": 2}}}}`},
			want: []string{"the script was ended before it began"},
		},
		"an aborted part": {
			samples: []string{passingSamples, other}, summaries: []string{partSummary("", 2), partSummary(`"aborted": true,`, 2)},
			want: []string{"part 2 was ended before it began"},
		},
		"the same samples twice": {
			samples: []string{passingSamples, passingSamples}, summaries: []string{partSummary("", 2), partSummary(`"knee": null,`, 2)},
			want: []string{"the files samples1.json and samples2.json have the same content: one part was given twice, and another is missing"},
		},
		"the same summary twice": {
			samples: []string{passingSamples, other}, summaries: []string{partSummary("", 2), partSummary("", 2)},
			want: []string{"the files summary1.json and summary2.json have the same content: one part was given twice, and another is missing"},
		},
		"samples of another run": {
			samples: []string{passingSamples}, summaries: []string{partSummary("", 3)},
			want: []string{"the samples hold 2 requests and the summaries 3: a file is missing, was cut off, or belongs to another run"},
		},
		"more samples than requests": {
			samples: []string{passingSamples, other}, summaries: []string{partSummary("", 2), partSummary(`"knee": null,`, 1)},
			want: []string{"the samples hold 4 requests and the summaries 3: a file is missing, was cut off, or belongs to another run"},
		},
		"samples that are cut off": {
			samples: []string{passingSamples[:len(passingSamples)-20]}, summaries: []string{partSummary("", 2)},
			want: []string{"k6's samples1.json is cut off in line 17: what is whole was read"},
		},
		"half of the run": {
			samples: []string{passingSamples}, summaries: []string{partSummary(`"segment": "0:1/2",`, 2)},
			want: []string{"the parts cover only 0:1/2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			files := ScriptFiles{Folder: t.TempDir()}
			for i, content := range c.samples {
				file := fmt.Sprintf("samples%d.json", i+1)
				writeFile(t, filepath.Join(files.Folder, file), content)
				files.Samples = append(files.Samples, file)
			}

			for i, content := range c.summaries {
				file := fmt.Sprintf("summary%d.json", i+1)
				writeFile(t, filepath.Join(files.Folder, file), content)
				files.Summaries = append(files.Summaries, file)
			}

			script, err := Build(files, Options{})
			if err != nil {
				t.Fatal(err)
			}

			if !slices.Equal(script.Failures, c.want) {
				t.Errorf("failures:\n%s\nwant:\n%s", strings.Join(script.Failures, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// k6 compresses, and a copy may have been decompressed: the content is what counts.
func TestBuild_FindsACompressedCopy(t *testing.T) {
	t.Parallel()

	files := ScriptFiles{Folder: t.TempDir(), Samples: []string{"a.json", "b.json.gz"}, Summaries: []string{"a", "b"}}
	writeFile(t, filepath.Join(files.Folder, "a.json"), passingSamples)
	writeFile(t, filepath.Join(files.Folder, "b.json.gz"), compress(t, passingSamples))
	writeFile(t, filepath.Join(files.Folder, "a"), partSummary("", 2))
	writeFile(t, filepath.Join(files.Folder, "b"), partSummary(`"knee": null,`, 2))

	script, err := Build(files, Options{})
	if err != nil {
		t.Fatal(err)
	}

	want := "the files a.json and b.json.gz have the same content: one part was given twice, and another is missing"
	if !slices.Equal(script.Problems, []string{want}) {
		t.Errorf("problems: %q", script.Problems)
	}
}

func TestSegmentsProblem(t *testing.T) {
	t.Parallel()

	for segments, want := range map[string]string{
		"":                     "",
		"-":                    "",
		"-,-":                  "", // not segmented
		"0:1":                  "",
		"0:1/2,1/2:1":          "",
		"1/2:1,0:1/2":          "",
		"0:1/3,1/3:2/3,2/3:1":  "",
		"0:0.25,0.25:1":        "",
		"0:1/2":                "the parts cover only 0:1/2",
		"0:1/3,2/3:1":          "the parts cover only 0:1/3, 2/3:1",
		"1/2:1":                "the parts cover only 1/2:1",
		"0:1/2,0:1/2":          "the parts cover only 0:1/2, 0:1/2",
		"0:1/2,0:1/2,1/2:1":    "the parts cover something more than once: 0:1/2, 0:1/2, 1/2:1",
		"0:1,0:1/2":            "the parts cover something more than once: 0:1, 0:1/2",
		"0:1/2,-":              "the parts cover something more than once: 0:1/2, the whole",
		"0:2":                  "the parts cover only 0:2",
		"half":                 `a summary has the segment "half", which cannot be read`,
		"0:1/0":                `a summary has the segment "0:1/0", which cannot be read`,
		"0:1e999999999":        `a summary has the segment "0:1e999999999", which cannot be read`,
		"0:1/9999999999999999": `a summary has the segment "0:1/9999999999999999", which cannot be read`,
	} {
		var summaries []summary
		for text := range strings.SplitSeq(segments, ",") {
			summaries = append(summaries, summary{Segment: strings.Trim(text, "-")})
		}

		got := segmentsProblem(summaries)
		if got != want {
			t.Errorf("%s: %q, want %q", segments, got, want)
		}
	}
}

// rampParts returns the files of a distributed run of two parts, which are the ramp of testdata and
// the same of another account.
func rampParts(t *testing.T) ScriptFiles {
	t.Helper()
	folder := t.TempDir()
	summary, err := os.ReadFile(filepath.Join("testdata", "ramp.summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := os.Open(filepath.Join("testdata", "ramp.samples.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer zipped.Close()

	unzipped, err := gzip.NewReader(zipped)
	if err != nil {
		t.Fatal(err)
	}
	samples, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}

	for i, name := range []string{"1", "2"} {
		segment := []string{"0:1/2", "1/2:1"}[i]
		writeFile(t, filepath.Join(folder, name+".json"), strings.ReplaceAll(string(samples), `"account":"1"`, `"account":"`+name+`"`))
		writeFile(t, filepath.Join(folder, name+".summary.json"), strings.Replace(string(summary), "{", `{"segment":"`+segment+`",`, 1))
	}

	return ScriptFiles{
		Folder:    folder,
		Samples:   []string{"1.json", "2.json"},
		Summaries: []string{"1.summary.json", "2.summary.json"},
	}
}
