// Package strictjson reads request bodies: JSON as RFC 8259 has it, in one pass
// over the text, with the caller saying what it wants of each member as it
// comes by.
//
// It owns syntax and types. What is refused as malformed: anything that is not
// RFC 8259, text that is not UTF-8, a raw control character in a string, the
// same key twice in one object at any depth (also when one of them is written
// with escapes), anything after the value, and nesting beyond MaxDepth. A value
// of the wrong type is no syntax error: it is noted under its path (Wrong) and
// reading goes on. null counts as absent. Keys are case-sensitive, unknown ones
// are skipped by the caller.
//
// It refuses meaning: lengths, formats and which fields are required are judged
// by package delivery. It also refuses reflection. sonic's visitor was the
// alternative: merely walking over a typical order costs it as much as all of
// the above costs here, 0.7 us and no allocation, and every check would come on
// top. The gateway's BenchmarkDecode compares the readers.
//
// Strings that it hands out are parts of the text that it was given, so that
// text must be a copy if the request's buffer is used again.
package strictjson
