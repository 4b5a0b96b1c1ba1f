package judge

import "testing"

func TestCheck_AServiceThatKeepsItsPromisesIsNotBlamed(t *testing.T) {
	t.Parallel()
	w := day()
	report, violations := w.check()
	if len(violations) > 0 {
		t.Errorf("violations:%s", listed(violations))
	}
	if report.Undecided > 0 || report.UndecidedWindows > 0 {
		t.Errorf("undecided: %d histories, %d windows", report.Undecided, report.UndecidedWindows)
	}
	if report.Orders != 12 || report.Replays != 12 || report.Webhooks == 0 || report.Histories != 12 || report.Windows == 0 {
		t.Errorf("looked at too little: %+v", report)
	}
}
