// What is computed and for which owner, shown before the start.
import type { RunView } from '@starling-grid/protocol'
import { bytes, count, duration, percent } from '../format.ts'

export function JobFacts(props: { readonly run: RunView }) {
  const { job } = props.run
  return (
    <section class="job-facts" aria-label="The job">
      <dl>
        <Fact term="For" detail={job.owner} />
        <Fact term="Model" detail={`${job.model}, ${count(job.parameters)} parameters`} />
        <Fact term="Data" detail={`${job.dataset}, ${count(job.trainSamples)} samples`} />
        <Fact term="Download" detail={`at most ${bytes(job.downloadBytes)}, kept for next time`} />
        <Fact term="Progress" detail={progress(props.run)} />
      </dl>
    </section>
  )
}

function Fact(props: { readonly term: string; readonly detail: string }) {
  return (
    <div>
      <dt>{props.term}</dt>
      <dd>{props.detail}</dd>
    </div>
  )
}

function progress(run: RunView): string {
  const done = percent(run.samplesExpected > 0 ? run.samplesCommitted / run.samplesExpected : 0)
  if (run.finishedAt !== null) return `${done}, finished`
  return run.etaSeconds === null ? done : `${done}, about ${duration(run.etaSeconds)} left`
}
