package finance

// pageRows is how many rows a page shows: fifty of the longest kind, with the
// longest names and as cards for a phone, stay below 100 kB with all else.
const pageRows = 50

// paging is where a page lies in its report.
type paging struct {
	Page, Pages int64
	// First and Last are its rows, counted from 1.
	First, Last, Rows   int64
	ToFirst, ToPrevious string // addresses; empty on the first page
	ToNext, ToLast      string // empty on the last one
	skip                int64
}

// pagingOf finds the page that was asked for. A number beyond the end is the
// last page: there were more rows, or fewer filters.
func pagingOf(v *view, rows int64) paging {
	pages := max(1, (rows+pageRows-1)/pageRows)
	page := min(max(v.Filters.page, 1), pages)
	g := paging{Page: page, Pages: pages, Rows: rows, skip: (page - 1) * pageRows}
	g.First = g.skip + 1
	to := func(n int64) string { return address(pathOf(v.Report), v.Filters.Typed, n) }
	if page > 1 {
		g.ToFirst, g.ToPrevious = to(1), to(page-1)
	}
	if page < pages {
		g.ToNext, g.ToLast = to(page+1), to(pages)
	}
	return g
}

// end notes how many rows there were.
func (g *paging) end(rows int) { g.Last = g.skip + int64(rows) }
