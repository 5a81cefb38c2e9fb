// Rows of words in columns.

/** Between two columns. */
const GAP = '  '

/** Lines of a table; the last column is as wide as it likes, and numbers stand on the right. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)))
  const isNumeric = widths.map((_, column) =>
    rows.slice(1).every((row) => /^[\d.,]*( ?%)?$|^-$/.test(row[column] ?? '')),
  )
  return rows.map((row) =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0
        return isNumeric[column] ? cell.padStart(width) : cell.padEnd(width)
      })
      .join(GAP)
      .trimEnd(),
  )
}

/** "name   value", a line each, with the names in one column. */
export function pairs(entries: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...entries.map(([name]) => name.length))
  return entries.map(([name, value]) => `${name.padEnd(width)}${GAP}${value}`)
}
