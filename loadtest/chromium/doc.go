// Package chromium drives a Chromium without a window: it opens pages, finds
// what is on them as a screen reader does (by role and name), clicks, types,
// downloads and takes pictures, and notes everything that a person would find in
// the browser's console: errors, refused scripts, failed requests, dialogs, and
// which hosts were asked for anything.
//
// It owns one Chromium with a profile folder of its own, both gone after Stop,
// and it ends nothing else. Every wait is bounded (Patience).
//
// It refuses to judge: tests do that (package browser of the system tests). It
// reaches loopback only, so that no page can bring anything from elsewhere.
package chromium
