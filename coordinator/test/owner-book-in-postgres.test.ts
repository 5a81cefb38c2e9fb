import { after } from 'node:test'
import { openPostgresState } from '../src/journal/postgres.ts'
import { ownerBookSuite } from './owner-book-suite.ts'
import { startPostgres } from './postgres.ts'

const postgres = await startPostgres()
after(() => postgres?.stop())
let databases = 0
if (postgres !== undefined)
  ownerBookSuite('in PostgreSQL', async () => {
    const url = postgres.database(`owners_${++databases}`)
    return async () => {
      const store = await openPostgresState(url)
      return { store, close: () => store.close() }
    }
  })
