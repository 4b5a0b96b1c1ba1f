package admin

import (
	"maps"
	"net/url"
	"strconv"
)

// pager is where a page stands in a list that is shown in parts.
type pager struct {
	Page, Pages, Total int
	Prev, Next         string // addresses; empty: there is none
}

// cut gives the part of a list that is asked for, and the way to the others. A
// number beyond the end is the last part: there were more, or fewer filters.
func cut[T any](all []T, size int, path string, asked *filters) ([]T, pager) {
	pg := pager{Pages: max(1, (len(all)+size-1)/size), Total: len(all)}
	pg.Page = min(asked.page(), pg.Pages)
	to := func(n int) string {
		q := maps.Clone(asked.Values)
		q.Set("page", strconv.Itoa(n))
		return address(path, q)
	}
	if pg.Page > 1 {
		pg.Prev = to(pg.Page - 1)
	}
	if pg.Page < pg.Pages {
		pg.Next = to(pg.Page + 1)
	}
	return all[(pg.Page-1)*size : min(pg.Page*size, len(all))], pg
}

// address is a path with the query's parameters that have a value.
func address(path string, query url.Values) string {
	kept := url.Values{}
	for name := range query {
		if value := query.Get(name); value != "" {
			kept.Set(name, value)
		}
	}
	if len(kept) == 0 {
		return path
	}
	return path + "?" + kept.Encode()
}

// tab is a link to one of several views of a list.
type tab struct {
	Name, Address string
	Current       bool
}
