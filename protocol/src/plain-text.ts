// Text from strangers that people will read in a table, a log or a terminal.

/** Control and format characters (also those that turn the direction of writing), lone surrogates, line separators. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu

/** One line without anything invisible. */
export function plainText(text: string): string {
  return text
    .replaceAll(/[\n\t]/g, ' ')
    .replaceAll(UNPRINTABLE, '')
    .trim()
}
