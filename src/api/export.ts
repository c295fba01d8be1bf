import { readEmail } from '../alerts/emails.ts'
import { readRules } from '../alerts/rules.ts'
import { readAccountLog } from '../db/account-log.ts'
import { listKeys } from '../identity/api-keys.ts'
import { listMembers } from '../identity/members.ts'
import { listSessions, type Session } from '../identity/sessions.ts'
import { listGivenBack } from '../ledger/adjustments.ts'
import { readBalance } from '../ledger/balance.ts'
import { listDeposits } from '../ledger/deposits.ts'
import { readAllRequests } from '../ledger/request-log.ts'
import type { TransferPage } from '../ledger/transfer-page.ts'
import { listWithdrawals } from '../ledger/withdrawals.ts'
import { chatContracts } from '../openapi/contracts/chat.ts'
import { listEndpoints } from '../webhooks/endpoints.ts'
import { renderRule } from './alerts.ts'
import type { Downloads } from './downloads.ts'
import type { GateOfRoutes } from './gate.ts'
import { renderKey } from './keys.ts'
import { renderLogRow, renderMember } from './members.ts'
import { renderAdjustment, renderBalance, renderDeposit, renderWithdrawal } from './render-funds.ts'
import { renderRequest } from './render-request.ts'
import { renderAccount, renderSessionEntry } from './render-session.ts'
import type { ApiRouter } from './router.ts'
import type { ApiServices } from './services.ts'
import { renderEndpoint } from './webhooks.ts'

const pageMax = 1_000

/** `GET /api/export`: all stored data of the account, produced while the client reads it. */
export function routeExport(router: ApiRouter, gate: GateOfRoutes, services: ApiServices, downloads: Downloads): void {
  const { database } = services

  router
    .at(chatContracts.exportAccount)
    .answer(async ({ owner, session, outgoing }) =>
      downloads.start(
        { owner, outgoing },
        { text: parts(session), type: 'application/json', name: 'penny-account.json' },
      ),
    )

  async function* parts(session: Session): AsyncGenerator<string> {
    const head = JSON.stringify({
      object: 'export',
      exported_at: new Date().toISOString(),
      account: await renderAccount(services, session, session),
      balance: renderBalance(await readBalance(database, session), services),
      sessions: (await listSessions(database, session.personId)).map((entry) => renderSessionEntry(entry, session)),
      keys: (await listKeys(database, session.accountId)).map(renderKey),
      members: (await listMembers(database, session)).map(renderMember),
      alert_rules: (await readRules(database, session)).map(renderRule),
      alert_email: (await readEmail(database, session))?.address ?? null,
      webhooks: (await listEndpoints(database, session)).map(renderEndpoint),
    })
    // Made before the client reads anything: a client could ask for it again and again, and read none of it.
    gate.countAnswer(session, head)
    yield head.slice(0, -1)
    yield* list(
      'deposits',
      transfers((page) => listDeposits(database, session, page)),
      renderDeposit,
    )
    yield* list(
      'withdrawals',
      transfers((page) => listWithdrawals(database, session, page)),
      renderWithdrawal,
    )
    yield* list(
      'adjustments',
      transfers((page) => listGivenBack(database, session, page)),
      renderAdjustment,
    )
    yield* list(
      'account_log',
      transfers((page) => readAccountLog(database, session, page)),
      renderLogRow,
    )
    yield* list('requests', readAllRequests(database, session, {}), renderRequest)
    yield '}\n'
  }
}

/** Writes one array member of the JSON object, page by page. */
async function* list<Row>(
  name: string,
  pages: AsyncIterable<readonly Row[]>,
  render: (row: Row) => object,
): AsyncGenerator<string> {
  yield `,"${name}":[`
  let separator = ''
  for await (const rows of pages) {
    if (rows.length === 0) continue
    yield separator + rows.map((row) => JSON.stringify(render(row))).join(',\n')
    separator = ',\n'
  }
  yield ']'
}

async function* transfers<Row extends { readonly createdAt: Date; readonly id: string }>(
  read: (page: TransferPage) => Promise<readonly Row[]>,
): AsyncGenerator<readonly Row[]> {
  let rows: readonly Row[] = await read({ limit: pageMax })
  while (rows.length > 0) {
    yield rows
    const last = rows.at(-1)!
    rows = rows.length < pageMax ? [] : await read({ below: { at: last.createdAt, id: last.id }, limit: pageMax })
  }
}
