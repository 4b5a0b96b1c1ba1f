package admin

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
)

const largestPage = 100_000

// What is pasted may be large.
func TestPages_StaySmallWhateverIsPasted(t *testing.T) {
	e := newEnv(t)
	id := e.newFleet("Uzun")
	page := "/fleets/" + id.String()
	for form, action := range map[string]string{page: page + "/coverage", "/fleets": "/fleets"} {
		a := e.Submit(form, action, "coverage", jagged(19_000)+"}").Want(http.StatusUnprocessableEntity, "too long to be shown again")
		if faultOf(a, "coverage") == "" || a.Value("coverage") != "" || len(a.Text) > largestPage {
			t.Errorf("%s: %q, %d bytes", form, faultOf(a, "coverage"), len(a.Text))
		}
	}
}

// jagged is a coverage with many corners.
func jagged(corners int) string {
	var ring strings.Builder
	for i := range corners {
		angle, radius := 2*math.Pi*float64(i)/float64(corners), 0.3+0.05*math.Sin(float64(i)*1.7)
		fmt.Fprintf(&ring, "[%.6f,%.6f],", 29+radius*math.Cos(angle), 41+radius*math.Sin(angle))
	}
	return `{"type":"Polygon","coordinates":[[` + ring.String() + fmt.Sprintf("[%.6f,%.6f]]]}", 29.3, 41.0)
}
