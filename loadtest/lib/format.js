// How figures are written.

// milliseconds writes a duration of so many ms, "-" for none.
export function milliseconds(value) {
  return value === undefined || value === null ? '-' : value.toFixed(value < 100 ? 1 : 0);
}

export function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

// aligned sets rows of cells as columns: of a pair both to the left, of more all but the first to the
// right.
export function aligned(rows) {
  const widths = rows[0].map((_, i) => Math.max(...rows.map((row) => row[i].length)));
  const isTable = rows[0].length > 2;
  const pad = (cell, i) => (isTable && i > 0 ? cell.padStart(widths[i]) : cell.padEnd(widths[i]));
  return rows.map((row) => `  ${row.map(pad).join('  ').trimEnd()}`);
}
