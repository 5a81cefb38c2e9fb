// A process of a volunteer's owner that sends as much as it may, 1 % of the limit at a time. It prints how much that
// was. Between two sends all that it wrote down is stored.
import { setImmediate } from 'node:timers/promises'
import { type KeptNotes, UploadBudget, UPLOADS_KEPT_MS } from '@starling-grid/volunteer'
import { openNotes } from '../src/kept-notes.ts'

const [folder = '', limit = '0'] = process.argv.slice(2)
const perHour = Number(limit)
const notes = openNotes('uploaded', UPLOADS_KEPT_MS, folder)
let underWay = 0
const counted = async <T>(work: Promise<T>): Promise<T> => {
  underWay++
  return work.finally(() => underWay--)
}
const watched: KeptNotes = { others: () => counted(notes.others()), write: (text) => counted(notes.write(text)) }
const budget = new UploadBudget(perHour, Date.now, watched)
await budget.load()
process.stdout.write('ready\n')
await new Promise((resolve) => process.stdin.once('data', resolve))
let sent = 0
try {
  for (;;) {
    budget.take(perHour / 100)
    sent += perHour / 100
    do await setImmediate()
    while (underWay > 0)
  }
} catch {
  process.stdout.write(`${sent}\n`)
}
process.exit(0)
