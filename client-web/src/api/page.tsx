// The HTTP interface of this coordinator, route by route, each with a form that sends a request.
import { useSignal } from '@preact/signals'
import { ERROR_CODES, ROUTES } from '@starling-grid/protocol'
import { Masthead } from '../masthead.tsx'
import { addressOf, answerText, type ApiDocument, type ListedOperation, operationsOf } from './document.ts'

export function ApiPage(props: { readonly document: ApiDocument; readonly token: string }) {
  const token = useSignal(props.token)
  const codes = Object.entries(ERROR_CODES)
  return (
    <div class="page api">
      <Masthead at={ROUTES.api} />
      <main>
        <h1>{props.document.info.title}</h1>
        <p>{props.document.info.description}</p>
        <label class="token">
          Token
          <input
            type="password"
            autocomplete="off"
            value={token.value}
            onInput={(event) => {
              token.value = event.currentTarget.value
            }}
          />
        </label>
        {operationsOf(props.document).map((operation) => (
          <Operation key={operation.operationId} operation={operation} token={() => token.value} />
        ))}
        <h2>Codes of refusals</h2>
        <dl>
          {codes.map(([code, meaning]) => (
            <div key={code} id={code}>
              <dt>{code}</dt>
              <dd>{meaning}</dd>
            </div>
          ))}
        </dl>
      </main>
    </div>
  )
}

function Operation(props: { readonly operation: ListedOperation; readonly token: () => string }) {
  const { operation } = props
  const answer = useSignal('')
  const send = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault()
    if (!(event.currentTarget instanceof HTMLFormElement)) return
    const values = Object.fromEntries(
      [...new FormData(event.currentTarget)].map(([name, text]) => [name, String(text)]),
    )
    answer.value = 'waiting for the answer'
    answer.value = await request(operation, values, props.token()).catch((error: unknown) => String(error))
  }
  return (
    <details>
      <summary>
        <code>
          {operation.method} {operation.path}
        </code>{' '}
        {operation.summary}
      </summary>
      <p>{operation.description}</p>
      <ul>
        {Object.entries(operation.responses).map(([status, { description = 'refusals of every route' }]) => (
          <li key={status}>
            {status}: {description}
          </li>
        ))}
      </ul>
      <form onSubmit={send}>
        {operation.parameters.map(({ name, required }) => (
          <label key={name}>
            {name} <input name={name} required={required} />
          </label>
        ))}
        {operation.requestBody === undefined ? null : (
          <label>
            JSON body <textarea name="body" rows={8} />
          </label>
        )}
        <button type="submit">Send</button>
      </form>
      {answer.value === '' ? null : <pre>{answer.value}</pre>}
    </details>
  )
}

async function request(
  operation: ListedOperation,
  { body, ...values }: Readonly<Record<string, string>>,
  token: string,
): Promise<string> {
  const response = await fetch(addressOf(operation, values), {
    method: operation.method,
    headers: {
      ...(token === '' ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body }),
  })
  return answerText(response)
}
