// All mutants. A change that moves or removes a line named here changes the mutant with it (e2e/test/mutants.test.ts
// says which).
import { ARITHMETIC } from './arithmetic.ts'
import { OF_A_CLUSTER } from './cluster.ts'
import { DECISIONS } from './decisions.ts'
import { FORMATS_IN } from './formats.ts'
import { LANGUAGE } from './language.ts'
import type { Mutant } from './mutant.ts'
import { PAGES_SHOWN } from './pages.ts'
import { REPAIRS } from './repairs.ts'
import { RULE_MUTANTS } from './rules.ts'
import { SERVER_SIDE } from './server.ts'
import { VOLUNTEER } from './volunteer.ts'

export const MUTANTS: readonly Mutant[] = [
  ...ARITHMETIC,
  ...VOLUNTEER,
  ...DECISIONS,
  ...RULE_MUTANTS,
  ...SERVER_SIDE,
  ...FORMATS_IN,
  ...PAGES_SHOWN,
  ...REPAIRS,
  ...OF_A_CLUSTER,
  ...LANGUAGE,
]
