// Mutants of the pages and of what runs beside them in a visitor's browser.
import { type Mutant, mutantsOf } from './mutant.ts'

const PAGES = 'pages'

export const PAGES_SHOWN: readonly Mutant[] = [
  ...mutantsOf(
    PAGES,
    'client-web/src/live/run-history.ts',
    ['client-web/test/run-history'],
    [
      ['events are kept without bound', '...news.events], MAX_EVENTS)', '...news.events], 1e9)'],
      [
        'a rewind leaves the curve as it was',
        'steps: history.steps.filter((point) => point.v <= v)',
        'steps: history.steps',
      ],
      [
        'a rewind leaves validations that were taken back',
        'validations: history.validations.filter((point) => point.v <= v)',
        'validations: history.validations',
      ],
      ['points that are known come twice', 'present.filter((point) => point.v < first.v)', 'present'],
    ],
  ),
  ...mutantsOf(
    PAGES,
    'client-web/src/live/watch-socket.ts',
    ['client-web/test/watch-socket'],
    [
      ['the stream comes back without backing off', 'FIRST_WAIT_MS * 2 ** this.#failures', 'FIRST_WAIT_MS'],
      [
        'a stream that worked still waits long',
        'this.#failures = 0\n    this.#handlers.onLink',
        'this.#handlers.onLink',
      ],
    ],
  ),
  ...mutantsOf(
    PAGES,
    'client-web/src/format.ts',
    ['client-web/test/dashboard'],
    [['shares are shown 100 times too small', '(100 * fraction).toFixed(1)', 'fraction.toFixed(1)']],
  ),
  ...mutantsOf(
    PAGES,
    'protocol/src/tally.ts',
    ['client-web/test/dashboard'],
    [['accuracy is shown 100 times too small', '`${(100 * value).toFixed(1)} %`', '`${value.toFixed(1)} %`']],
  ),
  ...mutantsOf(
    PAGES,
    'client-web/src/contribute/session.ts',
    ['client-web/test/contribute'],
    [
      ['the page goes without waiting for the goodbye', 'while (performance.now() < until);', ''],
      [
        'samples of earlier starts are forgotten',
        'samplesCommitted: before + status.samplesCommitted',
        'samplesCommitted: status.samplesCommitted',
      ],
      [
        'a Worker that hangs is never ended from outside',
        'if (this.#running === running) this.#end(',
        'if (this.#running !== running) this.#end(',
      ],
      ['leaving says nothing to the Worker', '    this.stop()\n    // The Worker dies', '    // The Worker dies'],
    ],
  ),
]
