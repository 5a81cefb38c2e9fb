// Lists over HTTP, page by page: what a caller may ask of one, where the next page begins, and how a reader gets all.
import * as Type from 'typebox'
import { GridError } from './errors.ts'

/** Items of one page at most. */
export const MAX_PAGE = 500
/** Runs of a page that names no limit: each has its members. */
export const JOBS_PAGE = 100
/** Pages of one list that a reader follows: far more than any list of a coordinator has. */
const MOST_PAGES = 10_000

/** The place of a page's last item: a moment in ms, and what tells items of the same moment apart. */
const CursorSchema = Type.String({ pattern: '^\\d{1,16}(\\.\\d{1,20})?-[0-9a-z-]{1,40}$' })

/** Of a page: what the next one is asked for with `after`; null: the list ends here. */
export const NextSchema = Type.Union([CursorSchema, Type.Null()])

/** Query parameters of each route that answers with a page. */
export const PAGE_QUERY = {
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE })),
  after: Type.Optional(CursorSchema),
} as const

/** Items behind `after`, or the first ones. */
export type AskedPage = { readonly limit: number; readonly after?: string }

/** All pages of a list, in their order. @throws GridError 'message-too-large' for a list without an end */
export async function allPages<P extends { readonly next: string | null }>(
  get: (asked: AskedPage) => Promise<P>,
): Promise<P[]> {
  const pages: P[] = []
  for (let asked: AskedPage = { limit: MAX_PAGE }; pages.length < MOST_PAGES;) {
    const page = await get(asked)
    pages.push(page)
    if (page.next === null) return pages
    asked = { limit: MAX_PAGE, after: page.next }
  }
  throw new GridError('message-too-large', `expected a list of at most ${MOST_PAGES} pages, got more; ask for a part`)
}
