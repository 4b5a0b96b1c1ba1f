// Package svgmap makes maps as SVG out of our own data: where in Turkey a
// fleet delivers, and where a store, a drop-off and a courier are.
//
// It owns the projection, the shortening of long outlines, the scale bar and
// the template "map" with its stylesheet. What it puts into a path are numbers
// that it wrote itself; a title and a description are the caller's words and
// are escaped like any text.
//
// It refuses tiles, scripts and other hosts: a page with such a map asks nobody
// for it, so nobody else learns which order somebody looks at. It refuses to
// know what is private; a caller passes in what may be seen, as coarse as it may
// be seen.
//
// The projection is the local equirectangular one: longitudes are shortened by
// the cosine of the latitude in the middle, latitudes stay. Within a city
// (20 km) that is true to a thousandth, less than a pixel; over the whole of
// Turkey, 36° to 42°, east-west distances at the edges are wrong by 4 %, which
// no eye sees in a country's shape. Nobody navigates by these maps.
package svgmap
