// What only jobs with local rounds need: pages load it when there is one.
export { openLocalRounds } from './local-round.ts'
export { RoundWork } from './round-work.ts'
