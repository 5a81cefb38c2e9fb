import { ROUTES } from '@starling-grid/protocol'
// Name and the ways to the other pages; the same on all.

export function Masthead(props: { readonly at: '/' | typeof ROUTES.dashboard | typeof ROUTES.api }) {
  return (
    <header class="masthead">
      <a class="wordmark" href="/">
        <svg viewBox="0 0 32 20" aria-hidden="true">
          <path d="M2 3c6-1 11 1 14 7 3-6 8-8 14-7-6 1-11 5-14 14C13 8 8 4 2 3Z" />
        </svg>
        Starling
      </a>
      <nav aria-label="Pages">
        <a href="/" aria-current={props.at === '/' ? 'page' : undefined}>
          Contribute
        </a>
        <a href={ROUTES.dashboard} aria-current={props.at === ROUTES.dashboard ? 'page' : undefined}>
          Dashboard
        </a>
      </nav>
    </header>
  )
}
