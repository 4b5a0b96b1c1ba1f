//go:build long

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestList_IsCurrent(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	works, err := collect(root)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(filepath.Join(root, listFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, render(works)) {
		t.Errorf("%s is not current: make licences ARGS=-write, and look at what has changed", listFile)
	}
	for _, w := range works {
		if len(w.texts) > 0 && !bytes.Contains(allTexts(works), []byte("==== "+w.name+" ")) {
			t.Errorf("the texts lack %s", w.name)
		}
	}
}
