// How figures are written.

// milliseconds returns a duration in ms as text, without the unit; "-" for one that is missing.
export function milliseconds(value) {
  return value === undefined || value === null ? '-' : value.toFixed(value < 100 ? 1 : 0);
}

// megabytes returns a number of bytes as text.
export function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

// aligned returns rows of cells as lines with aligned columns. Rows have equally many cells. The first
// column is aligned to the left, and so is the second of two; if there are more, to the right.
export function aligned(rows) {
  const widths = rows[0].map((_, i) => Math.max(...rows.map((row) => row[i].length)));
  const isTable = rows[0].length > 2;
  const pad = (cell, i) => (isTable && i > 0 ? cell.padStart(widths[i]) : cell.padEnd(widths[i]));
  return rows.map((row) => `  ${row.map(pad).join('  ').trimEnd()}`);
}
