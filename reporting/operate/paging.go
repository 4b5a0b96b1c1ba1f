package operate

import (
	"net/url"
	"strconv"
)

// pager is where a page stands in a list that is shown in parts.
type pager struct {
	Page, Pages, Total int
	Prev, Next         string // addresses; empty: there is none
}

// cut gives the part of a list that a query asks for, and the way to the others.
// A number that is none, or beyond the end, is the nearest that there is.
func cut[T any](all []T, size int, path string, query url.Values) ([]T, pager) {
	pg := pager{Pages: max(1, (len(all)+size-1)/size), Total: len(all)}
	page, _ := strconv.Atoi(query.Get("page")) // no number: the first
	pg.Page = min(max(page, 1), pg.Pages)
	to := func(n int) string {
		q := url.Values{}
		for name, values := range query {
			q[name] = values
		}
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

// only keeps the parameters that a page knows.
func only(query url.Values, names ...string) url.Values {
	kept := url.Values{}
	for _, name := range names {
		if value := query.Get(name); value != "" {
			kept.Set(name, shorten(value))
		}
	}
	return kept
}

// tab is a link to one of several views of a list.
type tab struct {
	Name, Address string
	Current       bool
}
