// Package finance shows the five reports (design section 8) as pages of the
// panel: filters, totals, rows page by page, charts, downloads, and whether the
// control totals tie.
//
//	/payments                 what should have been collected, with a summary
//	/payments/{report}        a report
//	/payments/ties            the summary's tile of the control totals, alone
//	/payments/control-totals/lines  what the page of control totals fetches
//
// A page is two questions to ClickHouse, whatever the report's length: what it
// adds up to, day by day, and the rows of the days that the page is about (see
// reports.Outline). So the totals below a table are always those of the whole
// report, at once and exact, and nothing but a page of rows is kept; five million
// orders take about a second. Control totals alone read every row, for their
// digests; the summary and their own page ask for them afterwards.
//
// Names of accounts, fleets and stores come from Redis. Without it, their ids
// serve as well.
//
// It refuses to calculate anything that a report has not, and to change
// anything. Who may see it says package access: the role finance.
package finance
