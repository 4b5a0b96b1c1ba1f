//go:build long

package main

import (
	"bytes"
	"testing"
)

func TestPlay_ASeedBreachesNothing(t *testing.T) {
	t.Setenv("ENVIRONMENT", "sandbox")
	var out bytes.Buffer

	verdict, err := playAll(t.Context(), &options{first: 1, seeds: 1, processes: 1}, "", &out)

	if err != nil || verdict != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestPlay_APlantedDefectIsFound(t *testing.T) {
	t.Setenv("ENVIRONMENT", "sandbox")
	var out bytes.Buffer

	verdict, err := playAll(t.Context(), &options{first: 1, seeds: 1, processes: 1}, "export-acknowledged-unstored", &out)

	if !showsAs(verdict, "clickhouse-differs") {
		t.Errorf("not found: %v\n%s", err, out.String())
	}
}
