import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Context, Hono } from 'hono'
import type { z } from 'zod'
import { type AccountRef, accountRef } from '../db/account-ref.ts'
import type { Connection } from '../db/database.ts'
import { ServiceError } from '../errors.ts'
import { AccountConcurrencyLimits } from '../fairness/concurrency-limit.ts'
import { type HonoBindings, honoPath } from '../http/hono.ts'
import { type BodyLimits, readJsonBytes } from '../http/read-body.ts'
import type { UnpaidRequests } from '../http/unpaid-requests.ts'
import { type Visitor, visitorOf } from '../http/visitor.ts'
import type { Bearer } from '../identity/key-finder.ts'
import { lockOpenAccount } from '../identity/open-account.ts'
import type { Session } from '../identity/sessions.ts'
import { parseJsonBody } from '../inference/json-body.ts'
import type { AnswerOf, BodyOf, Contract, QueryOf } from '../openapi/contract.ts'
import { refusalOf } from '../openapi/input-refusal.ts'
import { type Caller, type GateOfRoutes, RoleRequiredError } from './gate.ts'

/** An authorized request whose input matches the contract. */
export type Call<Exact extends Contract> = {
  readonly visitor: Visitor
  readonly parameters: Exact['parameters'] extends z.ZodType ? z.output<Exact['parameters']> : undefined
  readonly query: QueryOf<Exact>
  readonly headers: Exact['headers'] extends z.ZodType ? z.output<Exact['headers']> : undefined
  readonly body: BodyOf<Exact>
  /** The account whose data is requested. */
  readonly owner: Exact['access'] extends 'public'
    ? AccountRef | undefined
    : Exact['access'] extends 'key'
      ? Bearer
      : AccountRef
  /** Undefined when a management key is used. */
  readonly session: Exact['access'] extends 'session' | 'sandbox' | 'operator'
    ? Exact extends { readonly scope: string }
      ? Session | undefined
      : Session
    : Session | undefined
  readonly managementKey: Caller['managementKey']
  readonly keysMadeBy: Caller['keysMadeBy']
  readonly asOperator?: boolean
  readonly accept: string
  /** For long responses such as streams. */
  readonly outgoing: ServerResponse
  /**
   * Locks the account and authorizes the caller again. Call it in every transaction that creates or changes access: a member who is
   * removed or demoted, or a management key that is revoked during its own request, must not create access that outlives it. Returns
   * what the caller may do now.
   */
  lockAccess(connection: Connection): Promise<Pick<Call<Exact>, 'session' | 'keysMadeBy'>>
  /** Sets a response header. */
  setHeader(name: string, value: string): void
}

export type Handler<Exact extends Contract> = (call: Call<Exact>) => Promise<AnswerOf<Exact> | Response>

export type ApiRouterOptions = {
  readonly app: Hono<HonoBindings>
  readonly gate: GateOfRoutes
  readonly trustProxy: boolean
  readonly chatBodyLimits: BodyLimits
  readonly unpaid: UnpaidRequests
  /** Called when a member's role is not enough. */
  readonly onRoleRefused?: (contract: Contract, session: Session, visitor: Visitor) => Promise<void>
}

// Concurrent calls per account; the others wait. One account must not occupy all database connections of the dashboard.
const accountConcurrentMax = 2
/** Generous: a program may ask about each of its running requests concurrently. */
const accountWaitingMax = 2_000
// The largest body is the registration of a passkey.
const bodyBytesMax = 64 * 1024

/** Serves contracts: authorizes the caller, validates the input, runs the handler, renders the result. */
export class ApiRouter {
  readonly #options: ApiRouterOptions
  readonly #concurrencyLimits = new AccountConcurrencyLimits(accountConcurrentMax, accountWaitingMax)

  constructor(options: ApiRouterOptions) {
    this.#options = options
  }

  // In two steps, so that the compiler infers the contract before it checks the handler.
  at<const Exact extends Contract>(contract: Exact): { answer(handler: Handler<Exact>): void } {
    return { answer: (handler) => this.#put(contract, handler) }
  }

  #put<const Exact extends Contract>(contract: Exact, handler: Handler<Exact>): void {
    const { app } = this.#options
    app.on(contract.method, honoPath(contract.path), async (context) => {
      const answer = await this.#answer(contract, context as Context<HonoBindings>, handler)
      context.header('cache-control', 'no-store')
      if (answer instanceof Response) return answer
      if (contract.status === 204) return context.body(null, 204)
      return context.body(answer, contract.status ?? 200, { 'content-type': 'application/json' })
    })
  }

  /** Returns a file, or JSON. */
  async #answer<Exact extends Contract>(
    contract: Exact,
    context: Context<HonoBindings>,
    handler: Handler<Exact>,
  ): Promise<Response | string> {
    const { trustProxy, gate, unpaid } = this.#options
    const visitor = visitorOf(context.env.incoming, trustProxy)
    const exchange = { ...context.env, network: visitor.network }
    const caller = await gate.admit(contract, visitor).catch(async (error) => {
      await this.#recordRefusal(error, contract, visitor)
      await unpaid.beforeRefusal(error, exchange)
      throw error
    })
    const { owner } = caller
    if (owner === undefined) return jsonOf(await handler(await this.#read(contract, context, caller)))
    const work = async () => {
      const call = await this.#read(contract, context, caller)
      return this.#concurrencyLimits.run(owner.accountId, async () => {
        if (contract.method === 'GET') {
          const answer = jsonOf(await handler(call))
          if (contract.isHeavy && typeof answer === 'string') gate.countAnswer(owner, answer)
          return answer
        }
        // A client can take half a minute to send the body. A member may be removed in that time.
        const current = await gate.readmit(contract, caller).catch(async (error) => {
          await this.#recordRefusal(error, contract, visitor)
          throw error
        })
        return jsonOf(await handler({ ...call, ...current } as Call<Exact>))
      })
    }
    // All sessions of an account share its rates.
    const { managementKeyId } = caller.managementKey ?? {}
    const keyId = 'keyId' in owner ? (owner as Bearer).keyId : (managementKeyId ?? sessionsOf(owner.accountId))
    const bearer = { ...accountRef(owner), keyId }
    if (!contract.isChat) return unpaid.during(bearer, exchange, work)
    return unpaid.duringFree(bearer, exchange, async (request) => {
      await request.mayRead()
      return work()
    })
  }

  async #recordRefusal(error: unknown, contract: Contract, visitor: Visitor): Promise<void> {
    if (!(error instanceof RoleRequiredError) || error.needed !== 'owner') return
    await this.#options.onRoleRefused?.(contract, error.session, visitor)
  }

  async #read<Exact extends Contract>(
    contract: Exact,
    context: Context<HonoBindings>,
    caller: Caller,
  ): Promise<Call<Exact>> {
    const { incoming, outgoing } = context.env
    const { visitor } = caller
    return {
      ...caller,
      parameters: read(contract.parameters, context.req.param(), NotFoundError),
      query: read(contract.query, queryOf(context.req.url)),
      headers: read(contract.headers, context.req.header()),
      body: await this.#readBody(contract, incoming, caller.owner?.accountId ?? visitor.network),
      accept: context.req.header('accept') ?? '',
      outgoing,
      lockAccess: async (connection: Connection) => {
        await lockOpenAccount(connection, caller.owner!)
        return this.#options.gate.readmit(contract, caller, connection)
      },
      setHeader: (name: string, value: string) => context.header(name, value, { append: name === 'set-cookie' }),
    } as object as Call<Exact>
  }

  /** A missing body counts as an empty object: some routes need none. */
  async #readBody({ body, isChat }: Contract, incoming: IncomingMessage, account: string): Promise<unknown> {
    if (body === undefined) return undefined
    const { chatBodyLimits } = this.#options
    if (isChat) return parseJsonBody(await readJsonBytes(incoming, chatBodyLimits, account))
    const bytes = await readJsonBytes(incoming, { ...chatBodyLimits, bytesMax: bodyBytesMax }, account)
    return read(body, bytes.length === 0 ? {} : parseJsonBody(bytes))
  }
}

/** Empty for a route without an answer. */
function jsonOf(answer: unknown): Response | string {
  return answer instanceof Response ? answer : (JSON.stringify(answer) ?? '')
}

/** The rate limit name of an account's sessions. */
export function sessionsOf(accountId: string): string {
  return `sessions of ${accountId}`
}

function queryOf(url: string): Record<string, string | string[]> {
  const parameters = new URL(url, 'http://localhost').searchParams
  const names = [...new Set(parameters.keys())]
  return Object.fromEntries(
    names.map((name) => {
      const values = parameters.getAll(name)
      return [name, values.length === 1 ? values[0]! : values]
    }),
  )
}

function read(schema: z.ZodType | undefined, given: unknown, Refusal?: new () => ServiceError): unknown {
  if (schema === undefined) return undefined
  const result = schema.safeParse(given)
  if (result.success) return result.data
  if (Refusal !== undefined) throw new Refusal()
  throw refusalOf(result.error, given)
}

/** Also thrown for objects of other accounts, so ids cannot be probed. */
export class NotFoundError extends ServiceError {
  constructor() {
    super('not_found', 'No such object in this account.')
  }
}
