import type { IncomingMessage, ServerResponse } from 'node:http'
import { z } from 'zod'
import { accountRef } from '../db/account-ref.ts'
import { readJsonBytes } from '../http/read-body.ts'
import { visitorOf } from '../http/visitor.ts'
import { findKey } from '../identity/api-keys.ts'
import { parseJsonBody } from '../inference/json-body.ts'
import { findAccount } from '../ledger/accounts.ts'
import { chatContracts } from '../openapi/contracts/chat.ts'
import { unusable } from '../openapi/input-refusal.ts'
import { answerChat, type ChatCaller, type ChatOpening } from '../v1/create-chat-completion.ts'
import type { Gate } from './gate.ts'
import { NotFoundError, sessionsOf } from './router.ts'
import type { ApiServices } from './services.ts'

/** `POST /api/playground`: a chat completion for a session, under the limits of one of the account's keys. */
export async function createPlaygroundCompletion(
  services: ApiServices,
  gate: Gate,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const { database, trustProxy, bodyLimits } = services
  await answerChat(services, incoming, outgoing, async (): Promise<ChatCaller> => {
    const contract = chatContracts.createPlaygroundCompletion
    const caller = await gate.admit(contract, visitorOf(incoming, trustProxy))
    const owner = caller.owner!
    const { accountId } = owner
    return { account: accountRef(owner), limitedAs: sessionsOf(accountId), open }

    async function open(): Promise<ChatOpening> {
      const { keyId, chat } = readKeyId(parseJsonBody(await readJsonBytes(incoming, bodyLimits, accountId)))
      // A client can take half a minute to send the body. A member may be removed in that time.
      const { keysMadeBy } = await gate.readmit(contract, caller)
      const key = await findKey(database, owner, keyId, keysMadeBy)
      if (key === undefined) throw new NotFoundError()
      const account = await findAccount(database, key.partition, accountId)
      const { partition, id, options } = key
      const [depositAddress, x402Wallet] = [account?.address, account?.wallet]
      const bearer = { partition, accountId, keyId: id, depositAddress, x402Wallet, options }
      return { bearer, body: Buffer.from(JSON.stringify(chat)) }
    }
  })
}

/** Splits the body into the chosen key and the chat request. */
export function readKeyId(body: Readonly<Record<string, unknown>>): { readonly keyId: string; readonly chat: object } {
  const { key_id: keyId, ...chat } = body
  const { data, success } = z.uuid().safeParse(keyId)
  if (!success) throw unusable('key_id', 'it must be the id of one of your API keys')
  return { keyId: data, chat }
}
