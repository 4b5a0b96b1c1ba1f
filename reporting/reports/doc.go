// Package reports is finance's five reports (design section 8): what is in
// them, how they are read from ClickHouse, and how they are written.
//
//	views in ClickHouse --Report.Run--> rows --Sink--> table, csv, csv-plain, xlsx, json
//
// The views of package archive (schema/0005 and on) say what a report contains;
// this package asks for their rows in an order that is the same every time, sums
// them up exactly, and hands them to a sink one by one. However long a report
// is, it needs the same memory: rows are never collected, and ClickHouse sorts
// long reports some days at a time.
//
// It refuses to calculate what a view has not, to use floats for money (but for
// the cells of XLSX, which are floats by definition and hold kuruş exactly), and
// to know who may read: that is package access.
package reports
