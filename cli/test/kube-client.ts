// What a person does with `kubectl`, for tests.
import { request as plainRequest } from 'node:http'
import { request as tlsRequest } from 'node:https'
import { text } from 'node:stream/consumers'
import { GROUP, PLURAL, VERSION } from '../src/operator/training-job.ts'
import type { KubeObject } from './kube-server.ts'

export const NAMESPACE = 'default'
const JOBS = `/apis/${GROUP}/${VERSION}/namespaces/${NAMESPACE}/${PLURAL}`
const DEPLOYMENTS = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`

export interface KubeLogin {
  readonly url: string
  readonly token?: string | undefined
  readonly ca?: string | undefined
}

export interface KubeAnswer {
  readonly status: number
  readonly body: KubeObject & { readonly message?: string }
}

export class KubeClient {
  readonly #login: KubeLogin

  constructor(login: KubeLogin) {
    this.#login = login
  }

  ask(method: string, path: string, value?: object, type = 'application/json'): Promise<KubeAnswer> {
    const { url, token, ca } = this.#login
    const open = url.startsWith('https:') ? tlsRequest : plainRequest
    const headers = {
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(value === undefined ? {} : { 'content-type': type }),
    }
    return new Promise((resolve, reject) => {
      const request = open(url + path, { method, headers, ...(ca === undefined ? {} : { ca }) }, (response) => {
        text(response).then((body) => {
          const isJson = body.startsWith('{')
          resolve({
            status: response.statusCode ?? 0,
            body: (isJson ? JSON.parse(body) : { message: body }) as KubeAnswer['body'],
          })
        }, reject)
      })
      request.once('error', reject)
      request.end(value === undefined ? undefined : JSON.stringify(value))
    })
  }

  /** A TrainingJob. */
  async create(name: string, spec: object): Promise<KubeAnswer> {
    return this.ask('POST', JOBS, {
      apiVersion: `${GROUP}/${VERSION}`,
      kind: 'TrainingJob',
      metadata: { name, namespace: NAMESPACE },
      spec,
    })
  }

  async change(name: string, spec: object): Promise<KubeAnswer> {
    return this.ask('PATCH', `${JOBS}/${name}`, { spec }, 'application/merge-patch+json')
  }

  async get(name: string): Promise<KubeAnswer> {
    return this.ask('GET', `${JOBS}/${name}`)
  }

  async delete(name: string): Promise<KubeAnswer> {
    return this.ask('DELETE', `${JOBS}/${name}`)
  }

  async deploy(deployment: object): Promise<KubeAnswer> {
    return this.ask('POST', DEPLOYMENTS, deployment)
  }

  async replicas(name: string): Promise<number> {
    return Number((await this.ask('GET', `${DEPLOYMENTS}/${name}`)).body.spec?.['replicas'] ?? 0)
  }
}
